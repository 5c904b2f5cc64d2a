"""How a forked kernel ends: what the notebook left is brought to its end, what the warm process brought is left alone.

An interpreter that ends takes every module down and so writes into each page that it shares with the warm process: a
quarter of a second, and for a moment as much memory again as all libraries and models hold.
"""

import atexit
import gc
import io
import os
import sys
import threading
import weakref
from typing import NoReturn

_WRITERS = (io.TextIOWrapper, (io.BufferedWriter, io.BufferedRandom))  # text goes into the bytes below it


def disown_finalisers() -> None:
    """Before the forks: what belongs to the warm process now, such as a temporary folder, is not theirs to finalise."""
    for finaliser in list(weakref.finalize._registry):
        finaliser.atexit = False


def leave() -> NoReturn:
    """End this process as an interpreter does, short of taking modules down.

    In the interpreter's order: threads that are no daemons are waited for, exit handlers run (IPython's lets go of the
    notebook's names), then what only cycles keep alive is collected. Files that are still open are flushed, since those
    that a module holds would have been flushed with it.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    gc.collect()  # not of what was frozen before the fork
    files = [one for kind in _WRITERS for one in gc.get_objects() if isinstance(one, kind)]
    for file in [*files, sys.stdout, sys.stderr]:
        try:
            file.flush()
        except (OSError, ValueError, AttributeError):  # closed, or what it writes to is gone
            continue
    os._exit(0)
