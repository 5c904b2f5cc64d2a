"""What makes the check of an exercise safe to run: it has a time limit and says what is wrong instead of raising."""

import ctypes
import functools
import threading
import time
from collections.abc import Callable

_TRIES, _PAUSE_S = 20, 0.05  # a bare `except:` inside the loop may swallow the first ones
_LOOK_S = 0.2  # an interrupt is heard between two waits, on every system


class _TimeUp(SystemExit):
    """Raised inside an answer that takes too long; `except Exception` lets it pass, and a thread ends by it quietly."""


def within_seconds(seconds: float) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Decorate a check so that any answer to an exercise gets a sentence, whether it raises, exits or never ends.

    A check is a plain function of the student's answer that returns "ok" or a text that begins with "not yet". It runs
    in a thread of its own: a signal would need the main thread and a POSIX system, and a long call of C code would
    keep it waiting. A loop in Python is ended; such a call is left behind, and the notebook goes on.

    Args:
        seconds: how long the check may take.
    """

    def decorate(check: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(check)
        def limited(*answers: object) -> str:
            return _said(check, answers, seconds)

        limited.seconds = seconds
        return limited

    return decorate


def _said(check: Callable[..., str], answers: tuple[object, ...], seconds: float) -> str:
    said: list[str] = []
    done = threading.Event()  # after an interrupted join Python takes a running thread for a stopped one

    def work() -> None:
        try:
            said.append(check(*answers))
        except _TimeUp:
            pass
        except BaseException as error:  # an answer may even call exit()
            said.append(f"not yet: {type(error).__name__}: {error}".rstrip(": "))
        finally:
            done.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not done.wait(min(left, _LOOK_S)):
            pass
        in_time = said[:1]
    finally:  # whoever interrupts the cell means the answer too
        _end(thread, done)
    return in_time[0] if in_time else f"not yet: no answer after {seconds:g} seconds; is there a loop that never ends?"


def _end(thread: threading.Thread, done: threading.Event) -> None:
    """Raise `_TimeUp` in the thread until it ends; one that is inside C code cannot hear it and is given up."""
    for _ in range(_TRIES):
        if done.is_set():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeUp))
        done.wait(_PAUSE_S)
