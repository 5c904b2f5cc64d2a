"""A disk that is full or may not be written, told as one sentence."""

import errno
from pathlib import Path

from helpers.errors import HookbookError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EROFS, errno.EPERM)
UNWRITABLE = _FULL + _FORBIDDEN  # what would stop the next run as well


def disk_error(error: OSError, runs_dir: Path) -> HookbookError:
    """What to tell somebody whose run could not be written."""
    if error.errno in _FULL:
        return HookbookError(f"The disk is full: free space under {runs_dir} and run again; finished runs are kept.")
    if error.errno in _FORBIDDEN:
        return HookbookError(f"Cannot write to {error.filename or runs_dir}: choose a folder of yours with --runs.")
    return HookbookError(f"{error.strerror or error} ({error.filename or runs_dir}): mend that and run again.")
