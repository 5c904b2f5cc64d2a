"""A benchmark's machine: it must be idle, and the results say what it was."""

import platform
from importlib.metadata import version

import psutil

from helpers.errors import HookbookError

BUSY = 0.15  # share of the processors that others may use


def require_idle(seconds: float = 3) -> None:
    """Refuse to measure beside other work.

    Raises:
        HookbookError: others use more of the processors than BUSY.
    """
    used = psutil.cpu_percent(seconds) / 100
    if used > BUSY:
        raise HookbookError(
            f"Other programs use {used:.0%} of the processors, which would blur the times: close them and repeat, or "
            "pass --even-if-busy to see numbers that nobody should quote."
        )


def machine(libraries: tuple[str, ...]) -> dict:
    """Processor and versions, for the results."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(),
        "versions": {name: version(name) for name in libraries},
    }
