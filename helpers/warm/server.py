"""The warm process: imports everything once, then forks a kernel for each connection.

`Warm.start` runs it as `python -m helpers.warm.server SOCKET` with the models to hold on standard input; it writes one
line when it is ready. It has a single thread and computes with one, holds no event loop and no zmq context: only so can
its forks compute in parallel. A connection is a lifeline: whoever lets go of it has its kernel killed, and when
the owner lets go of standard input, everything ends.
"""

import os

OWNERS = dict(os.environ)  # as the owner has it, before the lines below
os.environ.update(
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
    HF_DEACTIVATE_ASYNC_LOAD="1",  # transformers would read weights with threads
    JE_ARROW_MALLOC_CONF="background_thread:false",  # pyarrow's allocator would have a thread that tidies up
    PYTORCH_NVML_BASED_CUDA_CHECK="1",  # asking for a GPU must not initialise CUDA, which no fork survives
    MPLBACKEND="module://matplotlib_inline.backend_inline",
)

import contextlib  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import pkgutil  # noqa: E402
import selectors  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

from helpers.warm import child, folders  # noqa: E402
from helpers.warm.channel import Channel  # noqa: E402
from helpers.warm.identity import APART, fixed, identity  # noqa: E402
from helpers.warm.leaving import disown_finalisers  # noqa: E402
from helpers.warm.threads import Threads, answer, ask_a_cold_process  # noqa: E402

_LIBRARIES = (
    *("ipykernel.ipkernel", "ipykernel.comm", "ipykernel.debugger", "IPython.core.completerlib"),
    *("IPython.core.debugger", "IPython.core.magics", "IPython.core.oinspect", "IPython.core.pylabtools", "sqlite3"),
    *("IPython.display", "IPython.extensions.storemagic", "tornado.platform.asyncio", "tornado.queues", "pdb"),
    # nothing of matplotlib_inline, which has to find a shell when it is imported
    *("matplotlib.pyplot", "matplotlib.backends.backend_agg", "ipywidgets", "pandas"),
    *("scipy.stats", "scipy.linalg", "sklearn.cluster", "sklearn.decomposition", "sklearn.linear_model"),
    *("sklearn.metrics", "sklearn.model_selection", "torch", "transformers", "transformer_lens", "tqdm.auto"),
    *("transformer_lens.model_bridge", "transformer_lens.tools.analysis.interchange", "ipykernel_launcher"),
)
_LOOK_S = 1.0  # between two looks at whether the owner lives


@dataclass
class Kernel:
    """A fork, and the descriptor that tells its end.

    Attributes:
        pid: process and group.
        watch: a descriptor that becomes readable when the process ends.
        folder: the client's private folder, removed if the client dies.
        told: whether it ended and the client knows.
        gone: whether the client let go.
    """

    pid: int
    watch: int
    folder: str | None
    told: bool = False
    gone: bool = False

    def kill(self) -> None:
        """End the kernel and what it started; the process has not been reaped, so the number is its own."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Server:
    """The loop that accepts, forks, and tells how kernels ended."""

    def __init__(self, address: str, hello: dict[str, Any]):
        """Listen.

        Args:
            address: path of the socket.
            hello: what every client is told first.
        """
        self._hello = hello
        self._owner = os.getppid()
        self._kernels: dict[Channel, Kernel] = {}
        self._channels: set[Channel] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address)
        self._listener.listen(64)
        self._selector = selectors.PollSelector()  # holds no descriptor that a fork would share
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ, self._owner_spoke)
        self._ended = False

    def serve(self) -> child.Job | None:
        """Serve until the owner goes; returns None then, and in each fork the job that it is to do."""
        while not self._ended and os.getppid() == self._owner:
            for key, _ in self._selector.select(_LOOK_S):
                current = self._selector.get_map().get(key.fd)
                if current is None or current.data is not key.data:  # an earlier event of this round took it away
                    continue
                if (job := key.data()) is not None:
                    return job
        for channel, kernel in self._kernels.items():
            kernel.kill()
            if kernel.folder and not kernel.gone:
                folders.remove(kernel.folder)
            channel.close()
        return None

    def _owner_spoke(self) -> None:
        self._ended = not os.read(0, 1)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        channel = Channel(connection)
        try:
            channel.send(self._hello)
        except OSError:
            channel.close()
            return
        self._channels.add(channel)
        self._selector.register(channel, selectors.EVENT_READ, partial(self._asked, channel))

    def _asked(self, channel: Channel) -> child.Job | None:
        try:
            message, fds = channel.receive(10)
        except (EOFError, TimeoutError, ValueError, OSError):
            self._drop(channel)
            return None
        try:
            if name := child.shadowed(message["cwd"]):
                self._answer(channel, {"refused": f"{message['cwd']} has a module {name} of its own"})
                return None
            return self._fork(channel, child.Job(**message, stdout=fds[0], stderr=fds[1]))
        except OSError as error:
            self._answer(channel, {"refused": f"the warm process could not fork ({error.strerror})"})
            return None
        finally:
            if channel in self._channels:  # not in the fork, which still needs them
                for fd in fds:
                    os.close(fd)

    def _fork(self, channel: Channel, job: child.Job) -> child.Job | None:
        reader, writer = os.pipe()
        server = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            child.separate(server)
            self._let_go()
            os.write(writer, b".")
            os.close(reader)
            os.close(writer)
            return job
        os.close(writer)
        os.read(reader, 1)  # from here on the process leads its group, so that it can be signalled as one
        os.close(reader)
        kernel = Kernel(pid, os.pidfd_open(pid), job.folder)
        self._kernels[channel] = kernel
        self._selector.register(kernel.watch, selectors.EVENT_READ, partial(self._died, channel, kernel))
        self._selector.modify(channel, selectors.EVENT_READ, partial(self._let, channel, kernel))
        self._answer(channel, {"pid": pid})
        return None

    def _died(self, channel: Channel, kernel: Kernel) -> None:
        """Tell how it ended; its number stays taken until the client knows, so that no signal hits a stranger."""
        self._selector.unregister(kernel.watch)
        os.close(kernel.watch)
        ended = os.waitid(os.P_PID, kernel.pid, os.WEXITED | os.WNOWAIT)
        kernel.kill()  # whatever it started and left behind
        kernel.told = True
        returncode = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if kernel.gone:
            self._reap(channel, kernel)
        else:
            self._answer(channel, {"returncode": returncode})

    def _let(self, channel: Channel, kernel: Kernel) -> None:
        """The client let go, or died: a kernel that lives is killed, one that ended is reaped."""
        self._drop(channel)
        kernel.gone = True
        if kernel.told:
            self._reap(channel, kernel)
            return
        kernel.kill()
        if kernel.folder:
            folders.remove(kernel.folder)

    def _reap(self, channel: Channel, kernel: Kernel) -> None:
        os.waitpid(kernel.pid, 0)
        del self._kernels[channel]

    def _answer(self, channel: Channel, message: dict[str, Any]) -> None:
        try:
            channel.send(message)
        except OSError:
            pass  # it is gone, which the selector is about to say

    def _drop(self, channel: Channel) -> None:
        self._selector.unregister(channel)
        self._channels.discard(channel)
        channel.close()

    def _let_go(self) -> None:
        """In the fork: close what belongs to the server through the objects that hold it.

        A descriptor closed behind an object's back would be closed once more when the object goes, and be another's.
        """
        self._selector.close()
        self._listener.close()
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        for kernel in self._kernels.values():
            if not kernel.told:
                os.close(kernel.watch)
        self._kernels.clear()


def import_libraries() -> None:
    """Import what kernels need; what cannot be imported is left to the kernel, which will say why."""
    import helpers

    for name in _LIBRARIES:
        _import(name)
    for info in pkgutil.iter_modules(helpers.__path__):
        if info.name not in (*APART, "warm"):
            _import(f"helpers.{info.name}")


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception:
        traceback.print_exc()  # into the log


def obstacle(before: str) -> str | None:
    """Why no kernel may be forked from this process; None if nothing speaks against it.

    Args:
        before: its identity before it imported anything.
    """
    import torch

    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return "this system does not tell when a process ends (pidfd_open)"
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        return f"the warm process has {threads} threads"
    if torch.cuda.is_initialized():
        return "CUDA is initialised in the warm process"
    if identity() != before:
        return "sources or libraries changed while the warm process started"
    return None


def main(address: str) -> None:
    """Prepare, say so on standard output, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    owner = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what imports print goes into the log
    models = json.loads(sys.stdin.readline())
    before = identity()
    cold = ask_a_cold_process(OWNERS)
    if sys.path[0] == os.getcwd():  # which `python -m` puts there; a kernel has its own working directory instead
        del sys.path[0]
    _import("ipykernel.kernelapp")  # first: tqdm looks for it when it chooses between text and widget
    of_a_kernel = dict(sys.modules)
    import_libraries()
    problem = hold(models)
    threads = Threads(answer(cold))
    disown_finalisers()
    gc.collect()
    _return_free_memory()
    gc.freeze()  # a collection in a fork would write into every page that holds objects
    hello = {"pid": os.getpid(), "identity": before, "fixed": fixed(OWNERS), "obstacle": obstacle(before)}
    server = Server(address, hello)
    with owner:
        owner.write(json.dumps({"problem": problem}) + "\n")
    job = server.serve()
    if job is None:
        folders.remove(os.path.dirname(address))
        os._exit(0)  # nothing here is worth a tidy end, and a fork's exit handlers are not ours
    child.settle(job, threads)
    child.run_kernel(job, of_a_kernel)


def _return_free_memory() -> None:
    """What imports and models left free on the heap would be copied by each fork that uses it."""
    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def hold(models: list[dict[str, Any]]) -> str | None:
    """Preload models; returns what is wrong with the first that cannot be."""
    from helpers.errors import HookbookError
    from helpers.models import preload_model

    try:
        for arguments in models:
            preload_model(**arguments)
    except HookbookError as error:
        return str(error)
    return None


if __name__ == "__main__":
    main(sys.argv[1])
