"""The time limit of checks: whatever an answer does, the notebook gets a sentence and goes on."""

import _thread
import os
import signal
import threading
import time

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from helpers.checks import within_seconds


@within_seconds(0.3)
def check(answer):
    """Says ok."""
    return "ok" if answer() == 1 else "not yet: another number"


def raises():
    raise KeyError("inside")


def exits():
    exit()


def endless():
    while True:
        pass


def swallows_errors():
    while True:
        try:
            raises()
        except Exception:
            pass


def swallows_everything():
    for _ in range(3):
        try:
            endless()
        except:  # noqa: E722
            pass


def in_c():
    time.sleep(3)


def interrupts():
    raise KeyboardInterrupt


def ended(before):
    """Whether all threads that were started since then end within moments."""
    until = time.monotonic() + 5
    while (left := set(threading.enumerate()) - set(before)) and time.monotonic() < until:
        time.sleep(0.01)
    return not left


def test_a_check_keeps_its_name_text_and_answer():
    assert check(lambda: 1) == "ok" and check(lambda: 2) == "not yet: another number"
    assert check.__name__ == "check" and check.__doc__ == "Says ok." and check.seconds == 0.3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (raises, "not yet: KeyError: 'inside'"),
        (exits, "not yet: SystemExit: None"),
        (interrupts, "not yet: KeyboardInterrupt"),
        (None, "not yet: TypeError: 'NoneType' object is not callable"),
    ],
)
def test_an_answer_that_raises_gets_a_sentence(answer, said):
    assert check(answer) == said


@pytest.mark.timeout(60)
@pytest.mark.parametrize("answer", [endless, swallows_errors, swallows_everything])
def test_an_endless_loop_gets_a_sentence_and_is_ended(answer):
    before = threading.enumerate()
    assert check(answer) == "not yet: no answer after 0.3 seconds; is there a loop that never ends?"
    assert ended(before)


@pytest.mark.timeout(60)
def test_a_call_of_c_code_is_left_behind():
    begun = time.monotonic()
    assert check(in_c).startswith("not yet: no answer after 0.3 seconds")
    assert time.monotonic() - begun < 2.5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("interrupt", [_thread.interrupt_main, lambda: os.kill(os.getpid(), signal.SIGINT)])
def test_whoever_interrupts_the_cell_ends_the_answer_too(interrupt):
    before = threading.enumerate()
    threading.Timer(0.3, interrupt).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        within_seconds(50)(check.__wrapped__)(endless)
    assert time.monotonic() - begun < 20 and ended(before)


def test_a_check_in_a_notebook_goes_on_after_an_endless_loop():
    """In a kernel, where the answer's output belongs to its cell and the next cell must run."""
    cells = [
        "from helpers.checks import within_seconds\n\n"
        "def answer():\n    print('I am here')\n    while True:\n        pass",
        "@within_seconds(1)\ndef check(answer):\n    return 'ok' if answer() else 'not yet'\n\nprint(check(answer))",
        "print('the notebook goes on')",
    ]
    nb = new_notebook(cells=[new_code_cell(source) for source in cells])
    NotebookClient(nb, timeout=60, kernel_name="python3").execute()
    texts = ["".join(output.text for output in cell.outputs) for cell in nb.cells]
    assert texts == [
        "",
        "I am here\nnot yet: no answer after 1 seconds; is there a loop that never ends?\n",
        "the notebook goes on\n",
    ]
    nbformat.validate(nb)
