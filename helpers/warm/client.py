"""Starting a warm process, and asking it for kernels."""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from helpers.errors import HookbookError
from helpers.warm import folders
from helpers.warm.channel import Channel
from helpers.warm.identity import DEFAULTS, HELPERS, fixed, identity

ADDRESS = "HOOKBOOK_WARM"
PROVISIONER = "hookbook-warm"
_ANSWER_S = 60  # eight kernels may be asked for at once, on a busy machine
_START_S = 600
_LINUX_ONLY = "kernels are forked on Linux only"


class Cold(Exception):
    """Why a kernel is not forked but started cold; the text is a clause without a full stop."""


class Forked:
    """A forked kernel, with that part of `subprocess.Popen` that Jupyter's provisioner and the runner use.

    Its end is told by the warm process, whose child it is. As long as this object has not taken note of the end, the
    number `pid` belongs to the kernel or to nobody, so that it may be signalled. Letting go of the object (or dying)
    kills the kernel and all that it started.

    Attributes:
        pid: of the process; also of its group and session.
        returncode: None while it lives, then the exit code, negative for a signal.
    """

    stdin = stdout = stderr = None

    def __init__(self, channel: Channel, pid: int, arguments: list[str]):
        self.args = arguments
        self.pid = pid
        self.returncode: int | None = None
        self._channel = channel
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Forked pid {self.pid}, returncode {self.returncode}>"

    def poll(self) -> int | None:
        """The exit code, None while it lives."""
        with self._lock:
            if self.returncode is None:
                try:
                    self._end(self._channel.receive(0)[0]["returncode"])
                except TimeoutError:
                    pass
                except EOFError:  # the warm process died, and the kernel with it
                    kill_group(self.pid)
                    self._end(-signal.SIGKILL)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it still lives.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout)
            waiting = select.poll()
            waiting.register(self._channel, select.POLLIN)
            # another thread may take the message, so look now and then
            waiting.poll(100 if left is None else min(100, left * 1000))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal the process, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def let_go(self) -> None:
        """Kill the kernel and all that it started, if it still lives; the warm process does it."""
        with self._lock:
            if self.returncode is None:
                self._end(-signal.SIGKILL)

    def _end(self, returncode: int) -> None:
        self.returncode = returncode
        self._channel.close()


def kill_group(pid: int) -> None:
    """Kill a process group, if there is one."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def impossible() -> str | None:
    """Why no process can be warm here, as a clause; None where it can."""
    return None if sys.platform == "linux" else _LINUX_ONLY


def fork(
    address: str,
    arguments: list[str],
    *,
    environment: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    folder: Path | None = None,
) -> Forked:
    """Ask a warm process for a kernel.

    Args:
        address: of the warm process.
        arguments: of ipykernel_launcher: `-f`, the connection file and so on.
        environment: the kernel's whole environment.
        cwd: its working directory; this process's if None.
        stdout: a file or descriptor, `subprocess.DEVNULL`, or None for this process's own.
        stderr: likewise, or `subprocess.STDOUT`.
        folder: a private folder that the warm process removes if this process dies before it can.

    Raises:
        Cold: no warm process there, or one that cannot give this kernel.
    """
    if reason := impossible():
        raise Cold(reason)
    cwd = os.path.abspath(cwd or os.getcwd())
    if not os.path.isdir(cwd):
        raise Cold(f"there is no folder {cwd}")
    channel = _connect(address)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        _check(channel, environment)
        out = _descriptor(stdout, 1, null)
        err = out if stderr == subprocess.STDOUT else _descriptor(stderr, 2, null)
        request = {"arguments": arguments, "environment": dict(environment), "cwd": cwd}
        channel.send({**request, "folder": str(folder) if folder else None}, (out, err))
        reply, _ = channel.receive(_ANSWER_S)
        if "refused" in reply:
            raise Cold(reply["refused"])
    except BaseException as error:
        channel.close()
        if isinstance(error, (OSError, EOFError)):  # TimeoutError is an OSError
            raise Cold("the warm process does not answer") from None
        raise
    finally:
        os.close(null)
    return Forked(channel, reply["pid"], arguments)


def _connect(address: str) -> Channel:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_ANSWER_S)
        connection.connect(address)
    except OSError:
        connection.close()
        raise Cold(f"no warm process listens at {address}") from None
    return Channel(connection)


def _check(channel: Channel, environment: Mapping[str, str]) -> None:
    """Raise `Cold` if the warm process cannot give what a cold start would."""
    hello, _ = channel.receive(_ANSWER_S)
    if hello["obstacle"]:
        raise Cold(hello["obstacle"])
    if hello["identity"] != identity():
        raise Cold("the warm process was made from other sources, libraries or another Python than are here now")
    wanted = fixed(environment)
    if differing := sorted(name for name, _ in wanted.items() ^ hello["fixed"].items()):
        raise Cold(f"the warm process was started with another {differing[0]}")


def _descriptor(stream: Any, own: int, null: int) -> int:
    if stream is None:
        return own
    if stream == subprocess.DEVNULL:
        return null
    if stream == subprocess.PIPE:
        raise Cold("a fork's output cannot be read through a pipe")
    return stream if isinstance(stream, int) else stream.fileno()


class Warm:
    """A warm process that this one owns; it ends with `close`, at the end of a `with`, or when this process does.

    Attributes:
        address: where kernels are to be had, for the environment variable HOOKBOOK_WARM.
        pid: of the warm process.
    """

    def __init__(self, process: subprocess.Popen, folder: Path):
        self.address = str(folder / "s")
        self.pid = process.pid
        self._process = process
        self._folder = folder
        self._owner = os.getpid()
        atexit.register(self.close)

    @classmethod
    def start(cls, models: Iterable[str | Mapping[str, Any]] = ()) -> "Warm":
        """Start a warm process and wait until it is ready, which takes as long as a cold kernel's imports.

        Args:
            models: what to hold in memory: arguments of `load_model`, or a name alone for its defaults. Only what is
                loaded onto the CPU with the very same arguments is handed out.

        Raises:
            HookbookError: not on this system, or a model that cannot be loaded.
        """
        if reason := impossible():
            raise HookbookError(f"A warm process cannot be started: {reason}. Leave it out; kernels then start cold.")
        folder = folders.private_folder("hw", "s")
        if folder is None:
            raise HookbookError("There is no folder for a socket: set TMPDIR to a short path that you may write to.")
        wanted = [{"name": model} if isinstance(model, str) else dict(model) for model in models]
        environment = {**DEFAULTS, **os.environ}
        environment.pop(ADDRESS, None)
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "helpers.warm.server", str(folder / "s")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=HELPERS.parent,
                env=environment,
                start_new_session=True,  # Ctrl-C is for those who wait for kernels
            )
        warm = cls(process, folder)
        try:
            process.stdin.write(json.dumps(wanted).encode() + b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], _START_S)
            line = process.stdout.readline() if ready else b""
            if not line:
                words = (folder / "log").read_text(errors="replace").strip().splitlines() or ["it said nothing"]
                raise HookbookError(
                    f"The warm process did not start ({words[-1]}); run without it, kernels start cold."
                )
            if problem := json.loads(line)["problem"]:
                raise HookbookError(problem)
        except BaseException as error:
            warm.close()
            if isinstance(error, BrokenPipeError):
                raise HookbookError("The warm process ended at once; run without it, kernels start cold.") from None
            raise
        return warm

    @property
    def environment(self) -> dict[str, str]:
        """What lets Jupyter in child processes fork its Python kernels from this warm process."""
        return {ADDRESS: self.address, "JUPYTER_DEFAULT_PROVISIONER_NAME": PROVISIONER}

    def close(self) -> None:
        """End the warm process and all its kernels; in a fork of its owner this does nothing."""
        atexit.unregister(self.close)
        if os.getpid() != self._owner:
            return
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its kernels die with it
            self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Warm":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
