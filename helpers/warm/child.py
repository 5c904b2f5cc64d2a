"""What a fork does to be the kernel that a cold start would have given: nothing of the warm process shows in it."""

import ctypes
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from helpers.warm.leaving import leave
from helpers.warm.threads import Threads

_PR_SET_PDEATHSIG = 1
_INLINE = "module://matplotlib_inline.backend_inline"


@dataclass(frozen=True)
class Job:
    """A kernel that somebody asked for.

    Attributes:
        arguments: of ipykernel_launcher.
        environment: the kernel's whole environment.
        cwd: its working directory.
        stdout: descriptor of its standard output, as received.
        stderr: likewise.
        folder: the client's private folder, removed for it should it die; or None.
    """

    arguments: list[str]
    environment: dict[str, str]
    cwd: str
    stdout: int
    stderr: int
    folder: str | None


def shadowed(cwd: str) -> str | None:
    """A module that a cold kernel would import from its working directory, where this process has another one.

    A kernel has its working directory first on its path: beside a notebook with a `helpers` package of its own, the
    modules that were imported beforehand are the wrong ones.
    """
    found = [(entry.name.removesuffix(".py"), Path(entry.path)) for entry in os.scandir(cwd)]
    for name, path in found:
        module = sys.modules.get(name)
        source = path / "__init__.py" if path.is_dir() else path
        if module is None or not getattr(module, "__file__", None) or source.suffix != ".py" or not source.is_file():
            continue
        if Path(module.__file__).resolve() != source.resolve():
            return name
    return None


def separate(parent: int) -> None:
    """Lead a session of its own, die with the warm process, and take signals as a new process does."""
    os.setsid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died in between
        os._exit(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def settle(job: Job, threads: Threads) -> None:
    """Take over descriptors, environment, working directory, random numbers and threads.

    Args:
        job: what was asked for.
        threads: the pools to set.
    """
    _take_descriptors(job)
    os.environ.clear()
    os.environ.update(job.environment)
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    os.chdir(job.cwd)
    time.tzset()
    tempfile.tempdir = None  # found again, by this environment
    _reseed()
    threads.set(job.environment)


class _Sys:
    """What ipykernel takes for `sys` while a kernel begins: with the modules of a kernel that has run nothing yet.

    ipykernel notes the files of all modules, for a debugger to pass over. Of all that a warm process has imported that
    is 33 MB of shared pages written to and half of the time until the kernel is ready, and more than a cold kernel's
    debugger passes over.
    """

    def __init__(self, modules: Mapping[str, ModuleType]):
        self.modules = modules

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


def run_kernel(job: Job, modules: Mapping[str, ModuleType]) -> NoReturn:
    """Be an IPython kernel until it is told to end; see `leave` for how it does.

    Args:
        job: what was asked for.
        modules: what was imported when ipykernel was.
    """
    import ipykernel_launcher
    import ipywidgets
    import matplotlib
    from ipykernel import ipkernel
    from ipykernel.kernelapp import IPKernelApp

    arguments = list(job.arguments)
    if not any(argument.startswith("--HistoryManager.hist_file") for argument in arguments):
        arguments.append("--HistoryManager.hist_file=:memory:")
    sys.argv = [ipykernel_launcher.__file__, *arguments]
    sys.orig_argv = [sys.executable, "-m", "ipykernel_launcher", *arguments]
    matplotlib.rcParams["backend"] = os.environ.get("MPLBACKEND") or _INLINE
    app = IPKernelApp.instance(parent_handle=os.getppid())  # its default was read from an older environment
    ipkernel.sys = _Sys(modules)
    app.initialize(arguments)
    ipkernel.sys = sys
    ipywidgets._handle_ipython()  # does at import what needs a kernel, and there was none
    app.start()
    leave()


def _take_descriptors(job: Job) -> None:
    """Standard streams as asked for, and nothing else of the warm process."""
    null = os.open(os.devnull, os.O_RDONLY)
    for given, place in ((null, 0), (job.stdout, 1), (job.stderr, 2)):
        os.dup2(given, place)
    for descriptor in _open_descriptors():
        if descriptor > 2:
            try:
                os.close(descriptor)
            except OSError:  # the one that listed them
                continue
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or os.isatty(stream.fileno()))


def _open_descriptors() -> Iterable[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _reseed() -> None:
    """Global generators as in a new process, where each is seeded by the system."""
    import numpy as np
    import torch

    random.seed()
    np.random.seed()  # noqa: NPY002 (the legacy generator is what users' libraries draw from)
    torch.default_generator.seed()
