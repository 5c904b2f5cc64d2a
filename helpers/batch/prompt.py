"""A kernel's manager and client that lose no time: Jupyter's own wait for tenths of a second between two looks.

A run of a small notebook spends more time in these pauses than in its cells.
"""

import math
import time
from queue import Empty
from typing import Any

from helpers.warm.listening import ListeningClient
from helpers.warm.provisioner import WarmManager

_RECONNECT_MS = 10  # a kernel that has just been started does not listen yet
_LOOK_S = 0.01


class PromptClient(ListeningClient):
    """A client that takes a kernel for ready when it has answered on both channels.

    Jupyter's own then waits until nothing has come for .2 s, so that later messages are not taken for answers; nbclient
    looks at each message's parent and needs no such pause.
    """

    async def wait_for_ready(self, timeout: float | None = None) -> None:
        """Wait for the first answer.

        Raises:
            RuntimeError: the kernel died or was not ready in time, in Jupyter's words.
        """
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while time.monotonic() < deadline:
            self.kernel_info()
            try:
                reply = await self.shell_channel.get_msg(timeout=1)
                await self.iopub_channel.get_msg(timeout=0.2)  # it is heard there too; else ask once more
            except Empty:
                if not await self._async_is_alive():
                    raise RuntimeError("Kernel died before replying to kernel_info") from None
                continue
            if reply["msg_type"] == "kernel_info_reply":
                self._handle_kernel_info_reply(reply)
                return
        raise RuntimeError(f"Kernel didn't respond in {timeout:.0f} seconds")


class PromptManager(WarmManager):
    """A manager whose clients connect as soon as the kernel listens, and that sees at once when it has ended."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.client_factory = PromptClient
        self.context.reconnect_ivl = _RECONNECT_MS

    async def _async_interrupt_kernel(self) -> None:
        """Nothing: Jupyter interrupts a kernel that is to end, for the sake of cells that run, and here all have run.

        A kernel that is just done with its last message would take it for an error and say so in its log. Who stops a
        cell signals the kernel's process.
        """

    async def _async_wait(self, pollinterval: float = _LOOK_S) -> None:
        await super()._async_wait(pollinterval=min(pollinterval, _LOOK_S))
