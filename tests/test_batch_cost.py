"""What a sweep spends beside its cells: processes that import only what they use, and no waiting for nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from toy_sweeps import toy

from helpers import papers
from helpers.batch.crew import Crew
from helpers.batch.prompt import PromptManager

PLANS = """
import sys
from pathlib import Path
from helpers.batch import commands, plan, spec, sweep
plan.planned(spec.Spec(notebook=sys.argv[1], grid={"seed": "0:3"}), Path(sys.argv[1]).parent / "runs")
print([name for name in ("torch", "pandas", "pyarrow", "papermill", "nbconvert") if name in sys.modules])
"""
IMPORTS = """
import sys
from pathlib import Path
def main():
    from helpers.batch import single, worker
    import papermill.execute
    heavy = ("torch", "pandas", "pyarrow", "rfc3987_syntax", "nbconvert")
    print([name for name in heavy if sys.modules.get(name)], flush=True)
"""


def test_a_supervisor_imports_no_pandas_for_a_notebook_without_data_sets(tmp_path):
    command = [sys.executable, "-c", PLANS, str(toy(tmp_path / "toy.ipynb", "print(seed)"))]
    environment = os.environ | {"PYTHONPATH": str(papers.ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[]\n"


def test_a_worker_imports_neither_pyarrow_nor_what_makes_pages(tmp_path):
    """As the crew starts workers; beside them papermill would import pyarrow, and jsonschema the check of addresses."""
    (tmp_path / "imports.py").write_text(IMPORTS)
    crew = Crew(tmp_path, os.environ | {"PYTHONPATH": str(tmp_path)})
    process = crew._start("imports", subprocess.PIPE)
    assert process.communicate(timeout=60)[0] == b"[]\n", (tmp_path / "workers.log").read_text()
    crew.end()


@pytest.fixture
def kernel(monkeypatch):
    """A kernel, started cold, with its manager, a client and a loop to wait in."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    loop = asyncio.new_event_loop()
    manager = PromptManager(kernel_name="python3")
    loop.run_until_complete(manager.start_kernel())
    client = manager.client()
    client.start_channels()
    yield loop, manager, client
    client.stop_channels()
    if manager.has_kernel:
        loop.run_until_complete(manager.shutdown_kernel(now=True))
    loop.close()


def test_a_kernel_is_ready_when_it_has_answered(kernel):
    loop, _, client = kernel
    loop.run_until_complete(client.wait_for_ready(timeout=60))
    began = time.monotonic()
    for _ in range(50):  # Jupyter's own would wait .2 s each time for messages that do not come
        loop.run_until_complete(client.wait_for_ready(timeout=60))
    assert time.monotonic() - began < 50 * 0.2
    reply = loop.run_until_complete(client.execute_interactive("print(1)", output_hook=lambda _: None, timeout=30))
    assert reply["content"]["status"] == "ok"


def test_a_kernel_that_dies_or_hangs_before_it_is_ready_is_told_apart(kernel):
    loop, manager, client = kernel
    os.kill(manager.provisioner.process.pid, signal.SIGSTOP)
    with pytest.raises(RuntimeError, match="Kernel didn't respond in 2 seconds"):
        loop.run_until_complete(client.wait_for_ready(timeout=2))
    os.kill(manager.provisioner.process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="Kernel died before replying"):
        loop.run_until_complete(client.wait_for_ready(timeout=30))


def test_a_kernel_whose_cells_have_run_is_not_interrupted(kernel, monkeypatch):
    """It might be busy with the last message still, and write into its log that it was interrupted."""
    loop, manager, client = kernel
    loop.run_until_complete(client.wait_for_ready(timeout=60))
    process, sent = manager.provisioner.process, []
    monkeypatch.setattr(process, "send_signal", sent.append)
    monkeypatch.setattr(os, "killpg", lambda group, number: sent.append(number))
    loop.run_until_complete(manager.shutdown_kernel())
    assert signal.SIGINT not in sent and process.poll() == 0


def test_the_end_of_a_kernel_is_seen_at_once(kernel):
    loop, manager, _ = kernel
    manager.provisioner.process.kill()
    manager.provisioner.process.wait()
    began = time.monotonic()
    looks = []
    answer = manager._async_is_alive

    async def is_alive():
        looks.append(time.monotonic())
        return len(looks) < 100 or await answer()

    manager._async_is_alive = is_alive
    loop.run_until_complete(manager._async_wait(pollinterval=0.1))
    assert len(looks) == 100 and time.monotonic() - began < 100 * 0.1
