"""One JSON object a line over a Unix socket; file descriptors travel with a line."""

import json
import select
import socket
from typing import Any

_CHUNK = 1 << 16
_MOST_FDS = 4


class Channel:
    """One end of a connection between a warm process and a client."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._unread = b""
        self._fds: list[int] = []

    def fileno(self) -> int:
        """The socket's descriptor, for selectors."""
        return self._connection.fileno()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = (), *, timeout: float = 30) -> None:
        """Send a message, and copies of descriptors with it.

        Raises:
            OSError: the other side is gone, or does not read.
        """
        data = json.dumps(message).encode() + b"\n"
        self._connection.settimeout(timeout)
        sent = socket.send_fds(self._connection, [data], fds) if fds else 0
        self._connection.sendall(data[sent:])

    def receive(self, timeout: float | None) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it.

        Args:
            timeout: seconds; 0 takes what is there, None waits for ever.

        Raises:
            TimeoutError: no whole message came in time.
            EOFError: the other side is gone.
        """
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while b"\n" not in self._unread:
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise TimeoutError
            try:
                chunk, fds, *_ = socket.recv_fds(self._connection, _CHUNK, _MOST_FDS)
            except ConnectionError:
                chunk, fds = b"", []
            if not chunk:
                raise EOFError
            self._unread += chunk
            self._fds += fds
        line, _, self._unread = self._unread.partition(b"\n")
        fds, self._fds = self._fds, []
        return json.loads(line), fds

    def close(self) -> None:
        """Close this end; the other one sees it at once."""
        self._connection.close()
