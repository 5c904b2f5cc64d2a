"""`hookbook warm`: a command with a warm process beside it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from helpers.errors import HookbookError
from helpers.warm.client import Warm


def run(command: list[str], models: list[Mapping[str, Any]]) -> int:
    """Run a command whose kernels are forked, and return its exit code (128 + n when signal n ended it).

    Args:
        command: the program and its arguments.
        models: what the warm process is to hold, as arguments of `load_model`.

    Raises:
        HookbookError: there is no such program or model, or processes cannot be warm on this system.
    """
    if shutil.which(command[0]) is None:
        raise HookbookError(f"There is no program {command[0]}: check its name, or give its path.")
    with Warm.start(models) as warm:
        process = subprocess.Popen(command, env={**os.environ, **warm.environment})
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            code = _wait(process)
        finally:
            signal.signal(signal.SIGTERM, before)
    return code if code >= 0 else 128 - code


def _wait(process: subprocess.Popen) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the command has got it too, and decides
            continue
