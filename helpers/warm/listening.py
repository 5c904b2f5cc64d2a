"""A client of kernels that hears every answer.

nbclient sends on the shell channel in the middle of a cell (the state of an Output widget) while it waits there for the
cell's answer. If the answer comes in just then, ZeroMQ tells of it only once, and to the sender: the one who waits is
never woken, and the run stands still for ever.
"""

import math
import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel

_LOOK_AGAIN_S = 1  # what a run loses if it happens


class ListeningChannel(AsyncZMQSocketChannel):
    """A channel that looks by itself whether a message has come, beside being told."""

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            Empty: none came in time.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return await super().get_msg(timeout=min(_LOOK_AGAIN_S, left))
            except Empty:
                if left <= _LOOK_AGAIN_S:
                    raise


class ListeningClient(AsyncKernelClient):
    """A client whose shell channel is a `ListeningChannel`."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.shell_channel_class = ListeningChannel
