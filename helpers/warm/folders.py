"""Private folders for sockets, whose paths must be short."""

import os
import tempfile
from pathlib import Path

_UNIX_PATH = 107  # bytes that the address of a Unix socket may have


def private_folder(prefix: str, longest: str) -> Path | None:
    """A new folder that only this user may enter, in which the file name `longest` can be a Unix socket's address.

    Args:
        prefix: how the folder's name begins.
        longest: the longest name of a socket to be put there.

    Returns:
        The folder; None where the system has no such sockets, or no place with a path short enough.
    """
    if os.name != "posix":
        return None
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        length = len(os.fsencode(os.path.join(os.path.abspath(parent), f"{prefix}12345678", longest)))
        if length <= _UNIX_PATH and os.access(parent, os.W_OK):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=os.path.abspath(parent)))
    return None


def remove(folder: Path | str) -> None:
    """Remove such a folder with the sockets and files in it; never anything below a folder in it."""
    try:
        for entry in os.scandir(folder):
            os.unlink(entry.path)
        os.rmdir(folder)
    except OSError:
        pass  # the other side was faster
