"""Forked kernels: as cold ones would be, apart from each other, and never left behind however something ends."""

import asyncio
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.provisioning import KernelProvisionerFactory
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers import notebooks
from helpers.batch.single import run
from helpers.errors import HookbookError
from helpers.fingerprint import DRIVING
from helpers.warm import client, folders, identity, provisioner
from helpers.warm.client import Cold, Warm, fork
from helpers.warm.command import run as run_command
from helpers.warm.listening import ListeningClient
from helpers.warm.preloads import preloads
from helpers.warm.provisioner import WarmManager, is_own

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")

BIG = {"hidden_size": 512, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BIG |= {"num_key_value_heads": 4, "vocab_size": 40_000, "tie_word_embeddings": False, "bos_token_id": 0}
BIG |= {"eos_token_id": 0, "pad_token_id": 0, "max_position_embeddings": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a model of 156 MB."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("big")
    LlamaForCausalLM(LlamaConfig(**BIG)).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"<s>": 0, "the": 1}, unk_token="<s>"))
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="<s>").save_pretrained(folder)
    yield str(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def warm(model):
    with Warm.start([{"name": model, "processing": "raw"}]) as warm:
        yield warm
        assert psutil.Process(warm.pid).num_threads() == 1 and not psutil.Process(warm.pid).children()
    assert not os.path.exists(os.path.dirname(warm.address)) and not alive(warm.pid)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(provisioner, "_said", set())
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)  # ipykernel would echo all output to the terminal


class Kernel:
    """A kernel and a client of it, with calls instead of coroutines."""

    def __init__(self, address, **options):
        self.loop = asyncio.new_event_loop()
        self.manager = type("Manager", (WarmManager,), {"address": address})(kernel_name="python3")
        self.options = options

    def start(self):
        self.wait(self.manager.start_kernel(**self.options))
        self.connect()
        return self

    def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        self.wait(self.client.wait_for_ready(timeout=60))

    def wait(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    @property
    def process(self):
        return self.manager.provisioner.process

    @property
    def folder(self):
        return Path(self.manager.ip).parent

    def run(self, code):
        """What the code printed; an error of the code is an error here."""
        return self.wait(self.running(code))

    async def running(self, code):
        out = []

        def hook(message):
            out.append(message["content"].get("text", ""))
            assert message["msg_type"] != "error", "\n".join(message["content"]["traceback"])

        await self.client.execute_interactive(code, output_hook=hook, timeout=120)
        return "".join(out)

    def send(self, code):
        """Start code and do not wait for it; returns what `reply` wants."""
        return self.client.execute(code)

    def reply(self, sent):
        while (message := self.wait(self.client.get_shell_msg(timeout=60)))["parent_header"]["msg_id"] != sent:
            continue
        return message["content"]

    def end(self, now=False):
        if self.manager.has_kernel:
            self.wait(self.manager.shutdown_kernel(now=now))
        self.client.stop_channels()
        self.loop.close()


@pytest.fixture
def kernel(warm):
    """Starts kernels, of the warm process unless another address is given, and ends them after the test."""
    started = []

    def kernel(address=warm.address, **options):
        started.append(Kernel(address, **options).start())
        return started[-1]

    yield kernel
    for one in started:
        if not one.loop.is_closed():
            one.end(now=True)


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def soon(condition, seconds=30):
    """Wait until something holds; False if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def notebook(path, *sources):
    nb = new_notebook(cells=[new_markdown_cell("# Toy")])
    nb.cells.append(new_code_cell("seed: int = 0  # 0..9", metadata={"tags": ["parameters"]}))
    nb.cells += [new_code_cell(source) for source in sources]
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebooks.write(nb, path)
    return path


def printed(nb):
    return "".join(output.get("text", "") for cell in nb.cells for output in cell.get("outputs", []))


# a fork is what a cold kernel would be

LOOKS = """
import json, locale, logging, os, signal, sys, threading, random
import matplotlib, numpy as np, pandas as pd, torch, threadpoolctl
from tqdm.auto import tqdm
import sklearn.cluster, __main__
random.seed(3), np.random.seed(3), torch.manual_seed(3)
table = torch.randn(300, 300)
looks = {
    "arguments": [sys.argv[0], sys.argv[1], __name__, __main__.__dict__ is globals()],
    "path": sys.path,
    # the names are what libraries add while they are imported
    "environment": {k: v for k, v in os.environ.items() if not k.startswith(("JPY_PARENT_PID", "KMP_", "PYDEVD_"))},
    "folder": os.getcwd(),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)],
    "group": os.getpgid(0) == os.getsid(0) == os.getpid(),
    "threads": sorted(type(t).__name__ for t in threading.enumerate() if "History" not in type(t).__name__),
    "numbers": [random.random(), np.random.rand(), table.sum().item(), (table @ table).sum().item()],
    "pools": sorted({(p["internal_api"], p["num_threads"]) for p in threadpoolctl.threadpool_info()}),
    "torch": [torch.get_num_threads(), torch.get_num_interop_threads(), torch.is_grad_enabled()],
    "matplotlib": {k: str(v) for k, v in matplotlib.rcParams.items()},
    "interactive": matplotlib.is_interactive(),
    "inline": "matplotlib_inline.backend_inline" in sys.modules,
    "tqdm": str(tqdm.__mro__),
    "logging": [logging.root.level, len(logging.root.handlers)],
    "numpy": np.geterr(),
    "streams": [type(sys.stdout).__name__, type(sys.stderr).__name__, sys.stdin.read()],
    "encoding": [sys.__stdout__.encoding, sys.__stdout__.errors, locale.getlocale()],
}
print(json.dumps(looks))
"""


@pytest.mark.parametrize("threads", ["2", None])
def test_a_fork_looks_like_a_cold_kernel(kernel, threads, monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("A_VARIABLE", "of this test")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    options = {"cwd": str(tmp_path), "env": dict(os.environ)}
    warm, cold = (json.loads(kernel(*address, **options).run(LOOKS)) for address in ((), (None,)))
    for name in cold:
        assert warm[name] == cold[name], name
    assert warm["environment"]["A_VARIABLE"] == "of this test" and warm["folder"] == str(tmp_path)


def test_two_forks_draw_different_numbers(kernel):
    code = "import random, numpy as np, torch\nprint(random.random(), np.random.rand(), torch.rand(1).item())"
    draws = [kernel().run(code + "\nprint(np.random.default_rng().random())").split() for _ in range(2)]
    assert not set(draws[0]) & set(draws[1])


def test_two_threads_compute_in_a_fork(kernel, monkeypatch):
    code = "import torch\nx = torch.rand(1200, 1200)\nfor _ in range(5):\n    x = x @ x / x.norm()\n"
    code += "import numpy as np\ny = np.random.rand(800, 800)\nz = y @ y\nprint(torch.get_num_threads())"
    assert kernel(env={**os.environ, "OMP_NUM_THREADS": "2"}).run(code) == "2\n"


def test_a_fork_has_no_descriptor_of_the_warm_process(kernel, warm):
    one, two = kernel(), kernel()
    place = f"/proc/{warm.pid}/fd"
    of_server = {os.readlink(f"{place}/{n}") for n in os.listdir(place)}
    of_server = {name for name in of_server if name.startswith(("socket", "pipe"))}
    assert len(of_server) >= 4  # the owner's pipe, the listener, and a connection for each kernel
    links = {os.readlink(f"/proc/{k.process.pid}/fd/{n}") for k in (one, two) for n in fds(k.process.pid)}
    assert not of_server & links


def fds(pid):
    return [name for name in os.listdir(f"/proc/{pid}/fd") if os.path.lexists(f"/proc/{pid}/fd/{name}")]


# a fork sees nothing of another

SETUP = """
import os, random, warnings, matplotlib.pyplot as plt, numpy as np, torch
from helpers.models import load_model
model = load_model({model!r}, processing="raw")
tokens = torch.tensor([[0, 5, 7]])
"""
PROBES = {
    "variables": ("leak = 1", "'leak' in globals()"),
    "modules": ("import sys; sys.modules['leak'] = sys", "'leak' in __import__('sys').modules"),
    "environment": ("os.environ['LEAK'] = '1'", "os.environ.get('LEAK')"),
    "folder": ("os.chdir('/')", "os.getcwd()"),
    "rcParams": ("plt.rcParams['lines.linewidth'] = 9", "plt.rcParams['lines.linewidth']"),
    "figures": (
        "get_ipython().run_line_magic('config', 'InlineBackend.close_figures = False')\nplt.figure()",
        "plt.get_fignums()",
    ),
    # not the first filter: libraries put theirs there for a while, from other threads too
    "warnings": ("warnings.simplefilter('error')", "('error', None, Warning, None, 0) in warnings.filters"),
    "gradients": ("torch.set_grad_enabled(False)", "torch.is_grad_enabled()"),
    "history": ("leaked_history = 1", "any('leaked_' + 'history' in str(line) for line in _ih[:-1])"),
    "hooks": (
        "hook = lambda value, hook: value * 0\nmodel.hook_dict['blocks.0.hook_resid_pre'].add_hook(hook)",
        "len(model.hook_dict['blocks.0.hook_resid_pre'].fwd_hooks)",
    ),
    "weights": (
        "with torch.no_grad():\n    [p.fill_(.5) for p in model.parameters()]",
        "[round(p.double().sum().item(), 6) for p in model.parameters()]",
    ),
}


@pytest.fixture(scope="module")
def views(warm, model, tmp_path_factory):
    """What each probe shows in four kernels: before, in the one that spoils everything, beside it, and after it."""
    cwd = str(tmp_path_factory.mktemp("views"))
    probes = "print(*map(repr, [" + ", ".join(probe for _, probe in PROBES.values()) + "]), sep='\\n')"
    spoil = "\n".join(dirty for dirty, _ in PROBES.values())

    def start():
        one = Kernel(warm.address, cwd=cwd).start()
        one.run(SETUP.format(model=model))
        return one

    def view(one):
        return dict(zip(PROBES, one.run(probes).splitlines(), strict=True))

    early, spoilt = start(), start()
    seen = {"before": view(early)}
    spoilt.run(spoil)
    spoilt.run("1")  # the history has the cell now
    seen |= {"spoilt": view(spoilt), "same time": view(early)}
    beside = start()
    seen["beside"] = view(beside)
    for one in (spoilt, early, beside):
        one.end()
    late = start()
    seen["after"] = view(late)
    late.end()
    return seen


@pytest.mark.parametrize("what", PROBES)
def test_nothing_leaks_from_a_kernel_into_another(views, what):
    assert views["spoilt"][what] != views["before"][what]
    others = {moment: views[moment][what] for moment in ("same time", "beside", "after")}
    assert set(others.values()) == {views["before"][what]}, others


# models

BOTH = """
import gc, psutil, torch
from helpers.models import load_model
model = load_model({model!r}, processing="raw")
with torch.no_grad():
    out = model(torch.tensor([[0, 5, 7]])).double().sum().item()
shared = psutil.Process().memory_full_info().uss / 2**20
print(shared, out, model.training, all(p.requires_grad for p in model.parameters()))
if {again}:
    other = load_model({model!r}, processing="raw")
    print(all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters())))
    print({{p.data_ptr() for p in model.parameters()}} & {{p.data_ptr() for p in other.parameters()}})
"""


def test_a_preloaded_model_is_shared_and_is_the_one_a_cold_kernel_loads(kernel, model):
    first, equal, common = kernel().run(BOTH.format(model=model, again=True)).splitlines()
    shared, out, *promises = first.split()
    assert float(shared) < 100 and promises == ["False", "True"]
    assert equal == "True" and common == "set()"  # a second call has its own
    _, cold_out, *cold_promises = kernel(None).run(BOTH.format(model=model, again=False)).split()
    assert cold_promises == promises
    assert float(out) == pytest.approx(float(cold_out), rel=1e-9)


def test_an_idle_fork_takes_little_memory(kernel):
    assert psutil.Process(kernel().process.pid).memory_full_info().uss / 2**20 < 75


def test_a_model_is_handed_out_once_and_not_after_its_files_changed(model):
    from helpers import loading
    from helpers.models import load_model, preload_model

    small, folder = f"random:{model}", Path(model)
    preload_model(small, processing="raw")
    (held,) = loading._held.values()
    assert load_model(small, processing="raw", seed=1) is not held
    assert load_model(small, processing="raw") is held and not loading._held
    assert load_model(small, processing="raw") is not held
    preload_model(small, processing="raw")
    os.utime(folder / "config.json")
    (held,) = loading._held.values()
    assert load_model(small, processing="raw") is not held
    loading._held.clear()
    preload_model(small, device="auto")
    assert not loading._held


def test_what_a_notebook_will_load_is_read_off_its_code():
    nb = new_notebook(cells=[new_markdown_cell("load_model('prose')")])
    nb.cells.append(new_code_cell("name: str = 'a'\nplace = 'cpu'\nseed = 0", metadata={"tags": ["parameters"]}))
    nb.cells.append(new_code_cell("seed = 2", metadata={"tags": ["injected-parameters"]}))
    nb.cells.append(
        new_code_cell(
            "load_model(name, device=place, seed=seed)\nmodels.load_model('random:b', dtype='bfloat16')\n"
            "load_model(other())\nload_model(name, device='cuda')\nload_model(**options)\nload_model()\nload(name)"
        )
    )
    nb.cells += [new_code_cell("%time load_model('c')"), new_code_cell("load_model(name, device=place, seed=seed)")]
    other = [{"dtype": "bfloat16", "name": "random:b"}, {}]
    assert preloads(nb) == [{"name": "a", "device": "cpu", "seed": 2}, *other]
    assert preloads(nb, {"name": "d"})[0] == {"name": "d", "device": "cpu", "seed": 2}
    assert preloads(nb, {"place": "cuda"}) == other


def test_a_model_that_cannot_be_had_is_a_sentence():
    with pytest.raises(HookbookError, match="There is no folder /nowhere"):
        Warm.start(["/nowhere"])


# each door to Jupyter


@pytest.fixture
def jupyter(warm, monkeypatch):
    """Jupyter in this process forks from the warm process, as it does under `hookbook warm`."""
    KernelProvisionerFactory.clear_instance()
    for name, value in warm.environment.items():
        monkeypatch.setenv(name, value)
    yield
    KernelProvisionerFactory.clear_instance()


PARENT = "import os\nprint(os.getppid(), os.getpid())"


def test_nbclient_gets_a_fork(jupyter, warm, tmp_path, capfd):
    nb = notebooks.read(notebook(tmp_path / "a.ipynb", PARENT))
    NotebookClient(nb, resources={"metadata": {"path": str(tmp_path)}}).execute()
    parent, pid = printed(nb).split()
    assert int(parent) == warm.pid and not alive(int(pid))
    assert nb.metadata.kernelspec.name == "python3"
    assert "TCP" not in capfd.readouterr().err


def test_nbclients_own_client_listens(jupyter):
    client = NotebookClient(new_notebook())
    with client.setup_kernel():
        assert isinstance(client.kc, ListeningClient)


def test_nbmake_gets_a_fork(jupyter, warm, tmp_path):
    path = notebook(tmp_path / "a.ipynb", PARENT)
    command = [sys.executable, "-m", "pytest", "--nbmake", "--overwrite", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    nb = notebooks.read(path)
    assert int(printed(nb).split()[0]) == warm.pid and nb.metadata.kernelspec.name == "python3"
    assert "TCP" not in done.stdout + done.stderr


def test_the_runner_gets_a_fork(jupyter, warm, tmp_path, capfd):
    record = run(
        notebook(tmp_path / "a.ipynb", PARENT, "seed\nopen('here', 'w')"), {"seed": 3}, runs_dir=tmp_path / "runs"
    )
    nb = notebooks.read(record.notebook)
    assert record.status == "done" and int(printed(nb).split()[0]) == warm.pid
    assert (record.folder / "here").exists() and not (record.folder / "kernel.log").exists()
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == ""


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed", "SIGSEGV"),
        ("import os\nos._exit(3)", "killed", "exit code 3"),
        ("import os\nos._exit(0)", "stopped early", "told to exit"),
        ("raise SystemExit(0)", "stopped early", "SystemExit"),
        ("import sys\nsys.exit(1)", "failed", "SystemExit: 1"),
    ],
)
def test_the_runner_is_told_truthfully_how_a_fork_ended(jupyter, tmp_path, code, status, words):
    record = run(notebook(tmp_path / "a.ipynb", PARENT, code, "2"), runs_dir=tmp_path / "runs")
    assert record.status == status and words in record.failure.error
    assert not alive(int(printed(notebooks.read(record.notebook)).split()[1]))


def test_the_runners_time_limit_holds(jupyter, tmp_path):
    record = run(notebook(tmp_path / "a.ipynb", "import time\ntime.sleep(60)"), runs_dir=tmp_path / "runs", timeout=3)
    assert record.status == "timed out"


# life and death

ENDS = """
import atexit, sys, threading, time
sys.path.insert(0, ".")
import own
note = open("note", "w")
note.write("of the notebook")
raw = open("raw", "wb")
raw.write(b"bytes")
atexit.register(lambda: open("handler", "w").write("ran"))
atexit.register(print, "to the log", file=sys.__stderr__)
threading.Thread(target=lambda: time.sleep(.2) or open("thread", "w").write("awaited")).start()
class Last:
    def __del__(self, open=open):
        open("finaliser", "w").write("ran")
last = Last()
last.itself = last
"""


@pytest.mark.parametrize("cold", [True, False])
def test_a_fork_that_is_told_to_end_ends_what_the_notebook_began_as_a_cold_kernel_does(kernel, tmp_path, cold):
    (tmp_path / "own.py").write_text("file = open('module', 'w')\nfile.write('of a module')\n")
    with open(tmp_path / "log", "wb") as log:
        one = kernel(*([None] if cold else []), cwd=str(tmp_path), stdout=log, stderr=log)
        one.run(ENDS)
        process = one.process
        one.end()
    found = {file.name: file.read_text() for file in tmp_path.iterdir() if file.is_file() and file.suffix != ".py"}
    assert process.poll() == 0
    assert found == {
        "note": "of the notebook",
        "raw": "bytes",
        "module": "of a module",
        "handler": "ran",
        "thread": "awaited",
        "finaliser": "ran",
        "log": "to the log\n",
    }


def test_a_fork_begins_with_little_memory_of_its_own(kernel):
    assert psutil.Process(kernel().process.pid).memory_full_info().uss < 45 * 2**20


@pytest.mark.parametrize("cold", [True, False])
def test_a_debugger_passes_over_the_kernels_own_files_and_not_over_libraries(kernel, cold):
    one = kernel(*([None] if cold else []))
    files = one.run("print(*get_ipython().kernel._kernel_modules, sep='\\n')").splitlines()
    assert any("/ipykernel/" in file for file in files) and not any("/torch/" in file for file in files)
    assert one.run("import sys\nprint('torch' in sys.modules)") == f"{not cold}\n"


def test_the_end_of_a_fork_takes_no_module_of_the_warm_process_down(kernel):
    """It would write into their pages and so hold a copy of most of what the warm process has imported."""
    one = kernel()
    process = psutil.Process(one.process.pid)
    sizes = [process.memory_full_info().uss]
    one.client.shutdown()
    while alive(process.pid):
        try:
            sizes.append(process.memory_full_info().uss)
        except psutil.Error:
            break
    assert max(sizes) - sizes[0] < 20 * 2**20


def test_interrupt_and_restart(kernel, warm, tmp_path):
    one = kernel(cwd=str(tmp_path))
    assert int(one.run("import os\nleak = 1\nprint(os.getppid())")) == warm.pid
    first, folder = one.process.pid, one.folder
    sent = one.send("open('sleeping', 'w').close()\nimport time\ntime.sleep(60)")
    assert soon((tmp_path / "sleeping").exists)
    one.wait(one.manager.interrupt_kernel())
    assert one.reply(sent)["ename"] == "KeyboardInterrupt" and one.run("print(leak)") == "1\n"
    one.client.stop_channels()
    one.wait(one.manager.restart_kernel())
    one.connect()
    assert one.run("print('leak' in globals(), os.getppid() if 'os' in globals() else None)") == "False None\n"
    assert int(one.run("import os\nprint(os.getppid())")) == warm.pid
    assert one.process.pid != first and not alive(first) and one.folder == folder
    one.end()
    assert not folder.exists()


def test_sockets_are_in_a_private_folder_until_the_end(kernel):
    one = kernel()
    assert stat.S_IMODE(one.folder.stat().st_mode) & 0o777 == 0o700
    assert {stat.S_ISSOCK(path.stat().st_mode) for path in one.folder.glob("k-*")} == {True}
    assert stat.S_IMODE((one.folder / "kernel.json").stat().st_mode) == 0o600
    assert one.manager.transport == "ipc"
    pid, folder = one.process.pid, one.folder
    one.end()
    assert not folder.exists() and not alive(pid)


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("os._exit(3)", 3),
        ("os._exit(0)", 0),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_how_a_kernel_ends_is_told_and_nothing_stays(kernel, code, returncode):
    one = kernel()
    sleeper = int(one.run("import os, subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)"))
    process, folder = one.process, one.folder
    one.send(code)
    assert process.wait(30) == returncode == process.poll()
    assert soon(lambda: not alive(sleeper)) and soon(lambda: not psutil.pid_exists(process.pid))
    process.send_signal(signal.SIGTERM)  # which hits nobody
    one.end()
    one.manager.provisioner.discard()
    assert not folder.exists()


def test_a_kernel_told_to_end_does_so_by_itself(kernel):
    one = kernel()
    process = one.process
    one.end()
    assert process.returncode == 0


def test_an_answer_is_heard_though_something_was_sent_when_it_came(kernel):
    one = kernel()
    one.wait(one.running("1"))
    sent = one.send("import time; time.sleep(.3)")
    waiting = one.loop.create_task(one.client.get_shell_msg())
    one.wait(asyncio.sleep(0.1))  # it listens
    time.sleep(1)  # the answer comes
    comm = {"comm_id": "1", "data": {}}
    one.client.shell_channel.send(one.client.session.msg("comm_msg", comm))  # as nbclient does for an Output widget
    answer = one.wait(asyncio.wait_for(waiting, 20))
    assert answer["parent_header"]["msg_id"] == sent


def test_a_fork_writes_no_history(kernel):
    assert kernel().run("print(get_ipython().history_manager.hist_file)") == ":memory:\n"


def test_waiting_for_a_living_kernel_ends_in_time(kernel):
    with pytest.raises(subprocess.TimeoutExpired):
        kernel().process.wait(0.2)


def test_eight_at_once(warm):
    kernels = [Kernel(warm.address) for _ in range(8)]
    loop = kernels[0].loop

    async def one(kernel, number):
        await kernel.manager.start_kernel()
        kernel.client = kernel.manager.client()
        kernel.client.start_channels()
        await kernel.client.wait_for_ready(timeout=120)
        return await kernel.running(f"import os\nprint({number}, os.getppid())")

    async def everybody():
        try:
            return await asyncio.gather(*(one(kernel, number) for number, kernel in enumerate(kernels)))
        finally:
            await asyncio.gather(*(kernel.manager.shutdown_kernel(now=True) for kernel in kernels))
            for kernel in kernels:
                kernel.client.stop_channels()

    assert loop.run_until_complete(everybody()) == [f"{number} {warm.pid}\n" for number in range(8)]
    for kernel in kernels:
        kernel.loop.close()


CLIENT = """
import subprocess, sys, time
sys.path.insert(0, {tests!r})
from test_warm import Kernel
one = Kernel({address!r}).start()
print(one.process.pid, one.run("import os, subprocess; print(subprocess.Popen(['sleep', '600']).pid)").strip(), end=" ")
print(one.folder, flush=True)
time.sleep(600)
"""


def test_a_client_that_is_killed_takes_its_kernel_along(warm):
    code = CLIENT.format(tests=str(Path(__file__).parent), address=warm.address)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    kernel, sleeper, folder = process.stdout.readline().split()
    assert alive(int(kernel)) and alive(int(sleeper)) and os.path.isdir(folder)
    process.kill()
    process.communicate()
    assert soon(lambda: not psutil.pid_exists(int(kernel)) and not alive(int(sleeper)))
    assert soon(lambda: not os.path.exists(folder))


OWNER = """
import os, sys, time, papermill
ends = []
for number in range(2):
    nb = papermill.execute_notebook({path!r}, None, {{"seed": number}}, engine_name="hookbook", progress_bar=False)
    ends += ["".join(o.text for c in nb.cells for o in c.get("outputs", [])).split()]
    assert nb.metadata.kernelspec.name == "python3"
from helpers.warm.engine import _own
(warm,) = _own.values()
sys.path.insert(0, {tests!r})
from test_warm import Kernel
one = Kernel(warm.address).start()
print(ends[0][0], ends[1][0], ends[0][2], ends[1][2], warm.pid, one.process.pid, one.folder, warm.address, flush=True)
time.sleep(600)
"""


def test_papermills_engine_keeps_a_warm_process_that_dies_with_its_owner(tmp_path):
    path = notebook(tmp_path / "a.ipynb", PARENT + "\nprint(seed)")
    code = OWNER.format(path=str(path), tests=str(Path(__file__).parent))
    environment = {name: value for name, value in os.environ.items() if name != client.ADDRESS}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    words = process.stdout.readline().split()
    assert words, process.communicate()[1]
    assert words[0] == words[1] == words[4] and words[2:4] == ["0", "1"]
    server, kernel, folder, address = int(words[4]), int(words[5]), words[6], words[7]
    assert alive(server) and alive(kernel) and psutil.Process(kernel).ppid() == server
    process.kill()
    errors = process.communicate()[1]
    assert soon(lambda: not alive(server) and not alive(kernel))
    assert soon(lambda: not os.path.exists(folder) and not os.path.exists(os.path.dirname(address)))
    assert "TCP" not in errors


KILLER = """
import os, signal, subprocess, sys
sys.path.insert(0, {tests!r})
import psutil
from test_warm import Kernel, alive, soon
one = Kernel(os.environ["HOOKBOOK_WARM"]).start()
sleeper = int(one.run("import os, subprocess; print(subprocess.Popen(['sleep', '600']).pid)"))
process, folder = one.process, one.folder
os.kill(psutil.Process(process.pid).ppid(), signal.SIGKILL)
assert process.wait(30) == -signal.SIGKILL
assert soon(lambda: not alive(process.pid) and not alive(sleeper))
one.end()
one.manager.provisioner.discard()
assert not folder.exists()
again = Kernel(os.environ["HOOKBOOK_WARM"]).start()
assert psutil.Process(again.process.pid).ppid() == os.getpid()
again.end()
open({place!r}, "w").write(os.environ["HOOKBOOK_WARM"] + " " + os.environ["JUPYTER_DEFAULT_PROVISIONER_NAME"])
sys.exit(5)
"""


def test_a_warm_process_that_is_killed_takes_its_kernels_along(tmp_path):
    place = tmp_path / "told"
    code = KILLER.format(tests=str(Path(__file__).parent), place=str(place))
    before = signal.getsignal(signal.SIGTERM)
    assert run_command([sys.executable, "-c", code], []) == 5
    address, name = place.read_text().split()
    assert name == "hookbook-warm" and not os.path.exists(os.path.dirname(address))
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_command_that_is_not_there_is_a_sentence():
    with pytest.raises(HookbookError, match="There is no program nosuchprogram"):
        run_command(["nosuchprogram"], [])


# where there is no fork


def cold_reason(*arguments, **options):
    with pytest.raises(Cold) as raised:
        fork(*arguments, **options)
    return str(raised.value)


def test_other_sources_are_noticed(warm, monkeypatch, tmp_path):
    shutil.copy(identity.HELPERS / "errors.py", tmp_path)
    monkeypatch.setattr(identity, "HELPERS", tmp_path)
    first = identity.identity()
    assert identity.identity() == first
    (tmp_path / "errors.py").write_text((tmp_path / "errors.py").read_text() + "\n# edited\n")
    assert identity.identity() != first
    assert "made from other sources" in cold_reason(warm.address, [], environment=os.environ)


def test_what_libraries_read_when_imported_must_be_the_same(warm):
    changed = {**os.environ, "HF_HUB_OFFLINE": "maybe", "ANYTHING": "1", "OMP_NUM_THREADS": "7"}
    assert cold_reason(warm.address, [], environment=changed).endswith("another HF_HUB_OFFLINE")


def test_a_module_of_the_notebooks_own_is_not_hidden(warm, tmp_path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("")
    reason = cold_reason(warm.address, [], environment=os.environ, cwd=tmp_path)
    assert reason.endswith("has a module helpers of its own")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cwd": "/nowhere"}, "there is no folder /nowhere"),
        ({"stdout": subprocess.PIPE}, "cannot be read through a pipe"),
    ],
)
def test_what_a_fork_cannot_have(warm, options, words):
    assert words in cold_reason(warm.address, [], environment=os.environ, **options)


def test_a_cold_start_is_said_once_with_its_reason(kernel, caplog, tmp_path, capfd):
    with caplog.at_level(logging.WARNING):
        one, two = (kernel(str(tmp_path / "s")) for _ in range(2))
    assert [record.getMessage() for record in caplog.records] == [
        f"Kernels start cold: no warm process listens at {tmp_path}/s."
    ]
    assert {psutil.Process(k.process.pid).ppid() for k in (one, two)} == {os.getpid()}
    assert one.manager.transport == "ipc" and "TCP" not in capfd.readouterr().err


def test_other_systems_start_cold(warm, monkeypatch):
    monkeypatch.setattr(client.sys, "platform", "darwin")
    assert cold_reason(warm.address, [], environment=os.environ) == "kernels are forked on Linux only"
    with pytest.raises(HookbookError, match="kernels are forked on Linux only"):
        Warm.start()


def test_only_this_interpreters_kernels_are_forked(tmp_path):
    rest = ["-m", "ipykernel_launcher", "-f", "x"]
    assert is_own([sys.executable, *rest]) and is_own(["python3", *rest])
    assert is_own([sys.executable, "-Xfrozen_modules=off", *rest])
    assert not is_own([sys.executable, "-m", "other", "-f", "x"]) and not is_own(["/usr/bin/python9", *rest])
    (tmp_path / "python").symlink_to(os.path.realpath(sys.executable))  # what an environment of its own has
    assert not is_own([str(tmp_path / "python"), *rest])


def test_a_path_too_long_for_sockets_is_given_up(monkeypatch, tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(long))
    monkeypatch.setattr(folders.os, "access", lambda place, mode: str(place) != "/tmp")
    assert folders.private_folder("hb", "k-99") is None


def test_what_a_warm_process_leaves_out_measures_nothing():
    assert set(identity.APART) < set(DRIVING) and "warm" in DRIVING
