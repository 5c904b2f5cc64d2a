"""The runner: what is refused before a kernel starts, how each kind of ending is told, and what a run leaves behind."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import bad_notebooks
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

from helpers import datasets, notebooks
from helpers.batch.record import EXIT_CODES
from helpers.batch.refresh import refresh
from helpers.batch.single import new_folder, run
from helpers.errors import HookbookError
from helpers.rules import check

QUIET = Console(quiet=True)


@pytest.fixture
def toy(tmp_path):
    """Writes a notebook with one section per given cell and returns its path."""

    def toy(*sources, name="toy", parameters="seed: int = 0  # 0..9\nlabel: str = 'a'  # a name"):
        nb = new_notebook(cells=[new_markdown_cell("# Toy\n\n## Parameters")])
        nb.cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
        for number, source in enumerate(sources, start=1):
            nb.cells += [new_markdown_cell(f"## C{number} the claim"), new_code_cell(source)]
        path = tmp_path / f"{name}.ipynb"
        notebooks.write(nb, path)
        return path

    return toy


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def printed(record):
    """The standard output of all cells."""
    return "".join(
        output.text
        for cell in notebooks.read(record.notebook).cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream" and output.name == "stdout"
    )


def counts(record):
    return [cell.execution_count for cell in notebooks.code_cells(notebooks.read(record.notebook))]


def stored(record):
    return json.loads((record.folder / "run.json").read_text())


def test_a_run_leaves_everything_in_a_folder_of_its_own(toy, runs, capfd, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # ipykernel would echo all output to the terminal
    prints = "import os\nprint(seed, label, os.environ['HOOKBOOK_PRESET'], os.getcwd())"
    source = toy(prints, "grown = b'x' * 60_000_000")
    before = source.read_bytes()
    record = run(source, {"seed": "3"}, runs_dir=runs)
    assert (record.status, record.exit_code, record.preset) == ("done", 0, "custom")
    assert printed(record) == f"3 a custom {record.folder}\n"
    assert {file.name for file in record.folder.iterdir()} == {"toy.ipynb", "toy.html", "run.json"}
    assert record.parameters == {"seed": 3, "label": "a"}
    assert 80 < record.peak_private_mb < 400 and record.seconds > 0.1
    assert source.read_bytes() == before
    nb = notebooks.read(record.notebook)
    assert "papermill" not in nb.metadata and not any("papermill" in cell.metadata for cell in nb.cells)
    injected = [cell.source for cell in nb.cells if notebooks.has_tag(cell, "injected-parameters")]
    assert injected == ["# Parameters\nseed = 3\n"]
    assert nb.metadata.hookbook.fingerprint.id == record.folder.name
    facts = nb.metadata.hookbook.provenance
    assert facts.parameters == record.parameters and facts.peak_private_mb == record.peak_private_mb
    assert stored(record)["status"] == "done" and stored(record)["exit_code"] == 0
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == ""  # no wall of bars, no warning about sockets


def test_defaults_inject_nothing_and_bear_the_presets_name(toy, runs):
    record = run(toy("import os\nprint(os.environ['HOOKBOOK_PRESET'], os.environ['OMP_WAIT_POLICY'])"), runs_dir=runs)
    assert printed(record) == "quick passive\n" and record.preset == "quick"
    assert not any(notebooks.has_tag(cell, "injected-parameters") for cell in notebooks.read(record.notebook).cells)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sede": 1}, "toy has no parameter sede; did you mean seed?"),
        ({"seed": "x"}, "seed: expected int, got 'x'"),
        ({"seed": 10}, "seed: 10 is outside 0..9"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_starts(toy, runs, given, sentence):
    with pytest.raises(HookbookError, match=sentence.replace("?", r"\?")):
        run(toy("seed"), given, runs_dir=runs)
    assert not runs.exists()


def test_a_parameter_that_no_cell_reads_cannot_be_varied(toy, runs):
    source = toy("label")
    with pytest.raises(HookbookError, match="No cell of toy reads seed: another value would change nothing"):
        run(source, {"seed": 3}, runs_dir=runs)
    assert run(source, {"label": "b"}, runs_dir=runs).status == "done"


@pytest.mark.parametrize(
    ("slug", "preset", "sentence"),
    [
        ("sentimnt-direction", "quick", "did you mean sentiment-direction"),
        ("refusal-direction", "quick", "refusal-direction has no notebook yet"),
        ("none.ipynb", "quick", "No such file"),
    ],
)
def test_what_cannot_be_found_is_a_sentence(runs, slug, preset, sentence):
    with pytest.raises(HookbookError, match=sentence):
        run(slug, preset=preset, runs_dir=runs)


def test_an_unknown_preset_is_refused(toy, runs):
    with pytest.raises(HookbookError, match="toy has no preset evidense; it has quick"):
        run(toy("1"), preset="evidense", runs_dir=runs)


def test_presets_of_the_catalogue_set_parameters(tmp_path, runs):
    with bad_notebooks.tiny_catalogue():
        path = tmp_path / f"{bad_notebooks.SLUG}.ipynb"
        notebooks.write(bad_notebooks.source(), path)
        record = run(path, preset="evidence", runs_dir=runs)
        assert record.parameters["templates"] == 32 and record.ledger["preset"] == "evidence"
        with pytest.raises(HookbookError, match="it has quick, evidence, paper"):
            run(path, preset="big", runs_dir=runs)


def test_nothing_is_overwritten(toy, runs):
    source = toy("1")
    first, second = run(source, runs_dir=runs), run(source, runs_dir=runs)
    assert second.folder.name == f"{first.folder.name}-2" and first.notebook.exists()
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_folder(runs, "x"), range(40)))
    assert len(set(folders)) == 40


def test_two_at_once_do_not_disturb_each_other(toy, runs):
    sources = [toy(f"import time\ntime.sleep(1)\nprint({number})", name=f"toy{number}") for number in (1, 2, 3)]
    with ThreadPoolExecutor(3) as pool:
        records = list(pool.map(lambda source: run(source, runs_dir=runs), sources))
    assert [(record.status, printed(record)) for record in records] == [("done", f"{n}\n") for n in (1, 2, 3)]


def test_a_failure_says_where_and_keeps_what_ran(toy, runs):
    record = run(toy("print('before')", "x = 1\n\ndef f():\n    return x / 0\n\nf()", "print('after')"), runs_dir=runs)
    assert (record.status, record.exit_code) == ("failed", 1)
    failure = record.failure
    assert (failure.section, failure.cell, failure.line, failure.code) == ("C2 the claim", 3, 4, "return x / 0")
    assert failure.error == "ZeroDivisionError: division by zero"
    assert str(failure) == "C2 the claim, code cell 3, line 4: return x / 0\nZeroDivisionError: division by zero"
    assert printed(record) == "before\n" and counts(record) == [1, 2, 3, None]
    text = (record.folder / "traceback.txt").read_text()
    assert "return x / 0" in text and "\x1b" not in text
    assert "ZeroDivisionError" in record.html.read_text() and stored(record)["failure"] == str(failure)


@pytest.mark.parametrize(
    ("code", "status", "exit_code", "words"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "killed", 3, "SIGKILL; the system may have run"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed", 3, "SIGSEGV"),
        ("import os\nos._exit(3)", "killed", 3, "exit code 3"),
        ("import os\nos._exit(0)", "stopped early", 4, "told to exit"),
        ("raise SystemExit(0)", "stopped early", 4, "SystemExit"),
        ("import sys\nsys.exit()", "stopped early", 4, "SystemExit"),
        ("import sys\nsys.exit(1)", "failed", 1, "SystemExit: 1"),
        ("x = (", "failed", 1, "SyntaxError"),
    ],
)
def test_every_ending_has_its_name(toy, runs, code, status, exit_code, words):
    started = time.monotonic()
    record = run(toy("print(1)", code, "print(2)"), runs_dir=runs)
    assert time.monotonic() - started < 10
    assert (record.status, record.exit_code) == (status, exit_code) and words in record.failure.error
    assert record.failure.section == "C2 the claim" and printed(record) == "1\n"
    assert counts(record)[-1] is None
    assert stored(record)["status"] == status and record.html.exists()


def test_after_a_kill_nothing_stays_and_the_next_run_is_well(toy, runs):
    code = "import os, subprocess\nchild = subprocess.Popen(['sleep', '600'])\nprint(os.getpid(), child.pid)"
    record = run(toy(code, "import time\ntime.sleep(.6)", "os.kill(os.getpid(), 9)", "1", "2"), runs_dir=runs)
    assert record.status == "killed" and record.failure.section == "C3 the claim"
    assert counts(record)[-2:] == [None, None]
    assert not any(alive(int(pid)) for pid in printed(record).split())
    assert run(toy("print(1)", name="next"), runs_dir=runs).status == "done"


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.sleep(60)",
        "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pass",
        "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass",
    ],
    ids=["sleeps", "swallows one interrupt", "swallows all"],
)
def test_the_time_limit_holds_whatever_the_cell_does(toy, runs, code, monkeypatch):
    monkeypatch.setattr("helpers.batch.kernel._GRACE_S", 1)
    record = run(toy("print('kept')", code, "print('never')"), runs_dir=runs, timeout=2)
    assert (record.status, record.exit_code) == ("timed out", 124) and record.seconds < 8
    assert record.failure.section == "C2 the claim" and printed(record) == "kept\n"


def test_a_run_that_ends_in_time_is_done(toy, runs):
    assert run(toy("1"), runs_dir=runs, timeout=60).status == "done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_ran(toy, runs, number):
    # a job that a script put in the background ignores Ctrl-C, and so would all that it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    source = toy("print('kept')", "import time\nopen('here', 'w').close()\ntime.sleep(60)", "print('never')")
    command = [sys.executable, "-m", "helpers.cli", "run", str(source), "--runs", str(runs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (here := list(runs.glob("*/*/here"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in output and "C2 the claim" in errors
    assert "Traceback" not in errors
    folder = here[0].parent
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    kept = notebooks.read(folder / "toy.ipynb").cells
    assert kept[3].outputs[0].text == "kept\n" and kept[-1].execution_count is None


def test_a_claim_never_reached_is_no_success(tmp_path, runs):
    nb = bad_notebooks.source()
    bad_notebooks.edit(nb, "ledger-2", '"reason": None', '"reason": "never reached" if id == "C2" else None')
    path = tmp_path / f"{bad_notebooks.SLUG}.ipynb"
    notebooks.write(nb, path)
    with bad_notebooks.tiny_catalogue():
        record = run(path, runs_dir=runs)
        assert (record.status, record.failure.error) == ("stopped early", "never reached: C2")
        bad_notebooks.cell(nb, "ledger-2").source = "1"
        notebooks.write(nb, path)
        assert run(path, runs_dir=runs).failure.error == "never reached: C1, C2"


def test_a_cell_that_was_skipped_is_no_success(toy, runs):
    path = toy("print(1)", "print(2)")
    nb = notebooks.read(path)
    nb.cells[3].metadata["tags"] = ["skip-execution"]
    notebooks.write(nb, path)
    record = run(path, runs_dir=runs)
    assert (record.status, record.failure.section) == ("stopped early", "C1 the claim")
    assert record.failure.error == "the cell never ran"


def test_an_executed_notebook_runs_with_its_own_defaults_again(toy, runs):
    first = run(toy("print(seed)"), {"seed": 5}, runs_dir=runs)
    again = run(first.notebook, runs_dir=runs / "again")
    assert printed(first) == "5\n" and printed(again) == "0\n"


def test_a_stray_kernel_called_python3_is_not_used(toy, runs, tmp_path, monkeypatch):
    spec = tmp_path / "share" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    record = run(toy("import sys\nprint(sys.executable)"), runs_dir=runs)
    assert printed(record) == f"{sys.executable}\n"


def test_every_folder_is_good_to_run_from(toy, runs, tmp_path, monkeypatch):
    source = toy("from helpers.papers import CATALOGUE\nprint(CATALOGUE.is_file())")
    monkeypatch.chdir(tmp_path)
    assert printed(run("toy.ipynb", runs_dir="runs")) == "True\n" and list(runs.glob("toy/*/run.json"))
    assert source.parent == tmp_path


def test_a_full_disk_is_a_sentence(toy, runs, monkeypatch):
    source = toy("1")

    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(notebooks, "write_text", full)
    with pytest.raises(HookbookError, match=f"The disk is full: free space under {runs} and run again"):
        run(source, runs_dir=runs)


def test_a_folder_that_cannot_be_written_is_a_sentence(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HookbookError, match="Not a directory|File exists"):
        run(toy("1"), runs_dir=tmp_path / "file")


def test_the_console_says_which_section_runs(toy, runs):
    seen = []

    class Spy(Console):
        def status(self, text, **options):
            seen.append(text)
            status = super().status(text, **options)
            update = status.update
            status.update = lambda *words, **more: (seen.append(words[0]), update(*words, **more))[-1]
            return status

    run(toy("1", "2"), runs_dir=runs, console=Spy(quiet=True, force_terminal=True))
    assert seen[-2:] == ["toy: C1 the claim [dim](2 of 3)", "toy: C2 the claim [dim](3 of 3)"]


def test_a_log_gets_a_line_for_each_section(toy, runs):
    log = io.StringIO()
    run(toy("1", "2"), runs_dir=runs, console=Console(file=log, width=80))
    assert log.getvalue().splitlines() == [
        "toy: Parameters (1 of 3)",
        "toy: C1 the claim (2 of 3)",
        "toy: C2 the claim (3 of 3)",
    ]


# refresh


@pytest.fixture
def tiny(tmp_path):
    """The good notebook of tests/bad as an author would have written it, alone in the catalogue."""
    path = tmp_path / f"{bad_notebooks.SLUG}.ipynb"
    notebooks.write(bad_notebooks.source(), path)
    with bad_notebooks.tiny_catalogue():
        yield path


def test_refresh_fills_the_committed_notebook(tiny, runs):
    before = notebooks.read(tiny)
    record = refresh(tiny, runs, console=QUIET)
    after = notebooks.read(tiny)
    assert record.status == "done" and check(tiny) == []
    assert [(cell.id, cell.source) for cell in after.cells] == [(cell.id, cell.source) for cell in before.cells]
    assert notebooks.ledger(after)["preset"] == "quick"
    first = tiny.read_text()
    refresh(tiny, runs, console=QUIET)
    pairs = zip(first.splitlines(), tiny.read_text().splitlines(), strict=True)
    changed = [old for old, new in pairs if old != new]
    assert all(any(word in line for word in ("date", "seconds", "peak", "started")) for line in changed), changed


def test_refresh_leaves_the_file_alone_when_the_run_fails(tiny, runs):
    nb = notebooks.read(tiny)
    bad_notebooks.edit(nb, "c2-2", "sum(rows)", "sum(row)")
    notebooks.write(nb, tiny)
    before = tiny.read_bytes()
    assert refresh(tiny, runs, console=QUIET).status == "failed" and tiny.read_bytes() == before


def test_refresh_refuses_another_quick_preset(tiny, runs):
    nb = notebooks.read(tiny)
    bad_notebooks.edit(nb, "parameters-2", "templates: int = 8", "templates: int = 9")
    notebooks.write(nb, tiny)
    with pytest.raises(HookbookError, match="quick preset differs from the parameters cell in templates"):
        refresh(tiny, runs, console=QUIET)


def test_refresh_does_not_lose_an_edit_made_meanwhile(tiny, runs):
    nb = notebooks.read(tiny)
    bad_notebooks.edit(nb, "c2-2", "moved = sum(rows)", "import time\n\ntime.sleep(1)\nmoved = sum(rows)")
    notebooks.write(nb, tiny)

    def edit():
        bad_notebooks.edit(nb, "title-1", "One idea", "Another idea")
        notebooks.write(nb, tiny)

    timer = threading.Timer(0.8, edit)
    timer.start()
    with pytest.raises(HookbookError, match="was edited while it ran"):
        refresh(tiny, runs, console=QUIET)
    timer.join()
    assert "Another idea" in tiny.read_text()


def test_exit_codes_are_distinct():
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES) and 2 not in EXIT_CODES.values()
    assert os.name != "posix" or all(0 <= code < 256 for code in EXIT_CODES.values())


def test_data_is_fetched_before_the_kernel_starts(toy, runs, monkeypatch):
    def refuse():
        raise HookbookError("no network")

    monkeypatch.setitem(datasets.FETCHED, "rotten_tomatoes", refuse)
    with pytest.raises(HookbookError, match="no network"):
        run(toy("print(seed, label)", "from helpers import datasets\n\ndatasets.rotten_tomatoes()"), runs_dir=runs)
    assert not runs.exists()
    assert run(toy("print(seed, label)", name="other"), runs_dir=runs).status == "done"
