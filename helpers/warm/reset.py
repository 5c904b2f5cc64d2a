"""Within a kernel that several runs use one after another: put back what a run changed, as far as that can be done.

It is no fresh process. What is put back: the notebook's names, IPython's hooks, environment, working directory, import
path, modules that are no installed libraries, builtins, random generators, warnings, logging, signals, and the settings
of torch, numpy, pandas and matplotlib. What a run changes inside an installed library otherwise, it leaves to the next.
"""

import builtins
import gc
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from helpers.warm import settings

_STAY = ("__main__", __name__, settings.__name__)
_SHELL = ("ast_transformers", "input_transformers_post", "input_transformers_cleanup")
_before: dict[str, Any] = {}


def begin(shell: Any) -> None:
    """Note how things are before the first run."""
    root = logging.getLogger()
    settings.note()
    _before.update(
        modules=set(sys.modules),
        builtins=dict(vars(builtins)),
        threads=set(threading.enumerate()),
        signals={number: signal.getsignal(number) for number in signal.valid_signals()},
        warnings=list(warnings.filters),
        logging=root.level,
        recursion=sys.getrecursionlimit(),
        # lists that are changed in place, by others too: each with its content
        lists=[(one, list(one)) for one in (sys.path, sys.argv, sys.meta_path, root.handlers)]
        + [(calls, list(calls)) for calls in shell.events.callbacks.values()]
        + [(getattr(shell, name), list(getattr(shell, name))) for name in _SHELL],
    )


def reset(shell: Any) -> list[str]:
    """Put back what a run changed.

    Returns:
        What it left that cannot be put back, each in a few words: then this process is of no use to another run.
    """
    shell.reset(new_session=True)
    for one, content in _before["lists"]:
        one[:] = content
    warnings.filters[:] = _before["warnings"]  # another list by now, where somebody has caught warnings meanwhile
    warnings._filters_mutated()
    for name in vars(builtins).keys() - _before["builtins"].keys():
        del vars(builtins)[name]
    vars(builtins).update(_before["builtins"])
    logging.getLogger().setLevel(_before["logging"])
    sys.setrecursionlimit(_before["recursion"])
    for number, handler in _before["signals"].items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    settings.restore()
    for name in [name for name, module in sys.modules.items() if _is_local(name, module)]:
        del sys.modules[name]
    gc.enable()
    gc.collect()
    threads = [one for one in threading.enumerate() if one not in _before["threads"] and _is_notebooks(one)]
    left = [f"the thread {one.name}" for one in threads]
    return left + [f"the process {child.pid}" for child in psutil.Process().children()]


def settle(environment: Mapping[str, str], cwd: str, log: str) -> None:
    """Take over environment, directory and log of the next run, and seed the generators as a new process does."""
    jupyters = {name: value for name, value in os.environ.items() if name.startswith("JPY_")}
    os.environ.clear()
    os.environ.update({**environment, **jupyters})
    os.chdir(cwd)
    time.tzset()
    tempfile.tempdir = None
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        # ipykernel reads what is written to descriptors 1 and 2, and passes it on to copies of what they were
        os.dup2(descriptor, getattr(stream, "_original_stdstream_copy", number))
    os.close(descriptor)
    random.seed()
    settings.reseed()


def _is_local(name: str, module: Any) -> bool:
    """Whether a module is Hookbook's or the user's own: those are imported anew, so that they remember nothing."""
    if name in _STAY:
        return False
    if name.split(".")[0] == "helpers":
        return True
    file = getattr(module, "__file__", None)
    installed = (sys.prefix, sys.base_prefix)
    return name not in _before["modules"] and file is not None and not str(Path(file).resolve()).startswith(installed)


def _is_notebooks(thread: threading.Thread) -> bool:
    """Whether a thread runs what a notebook wrote; libraries have threads of their own, which wait for work."""
    function = getattr(thread, "_target", None) or getattr(thread, "function", None)
    return getattr(function, "__module__", None) in (None, "__main__", "builtins")
