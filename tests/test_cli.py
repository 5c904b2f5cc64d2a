"""The command line: sentences instead of tracebacks, exit codes, and no waiting for torch where none is needed."""

import json
import os
import subprocess
import sys

import bad_notebooks
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

from helpers import cli, doctor, notebooks, papers
from helpers.batch.record import RunRecord
from helpers.errors import HookbookError


@pytest.fixture
def hookbook(monkeypatch, capsys):
    """Calls the command in this process; returns its exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["hookbook", *arguments])
        monkeypatch.setattr(cli, "out", Console(highlight=False, width=120))
        monkeypatch.setattr(cli, "err", Console(stderr=True, highlight=False, width=120))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def toy(tmp_path):
    def toy(code, parameters="seed: int = 0  # 0..9"):
        path = tmp_path / "toy.ipynb"
        first = new_code_cell(parameters, metadata={"tags": ["parameters"]})
        notebooks.write(new_notebook(cells=[new_markdown_cell("# T"), first, new_code_cell(code)]), path)
        return str(path)

    return toy


def test_list_shows_every_paper(hookbook):
    code, output, _ = hookbook("list")
    assert code == 0 and all(slug in output for slug in papers.catalogue())
    assert f"{len(papers.catalogue())} papers" in output


def test_list_standing_shows_those_with_a_notebook(hookbook):
    _, output, _ = hookbook("list", "--standing")
    assert "sentiment-direction" in output and "refusal-direction" not in output


def test_show_tells_claims_tests_and_parameters(hookbook):
    _, output, _ = hookbook("show", "sentiment-direction")
    claims = papers.paper("sentiment-direction").claims
    assert all(claim.id in output and claim.test.describe() in output for claim in claims)
    _, output, _ = hookbook("show", "refusal-direction")
    assert "hookbook new refusal-direction" in output


@pytest.mark.parametrize("command", ["show", "run", "refresh", "check", "new", "student", "power"])
def test_an_unknown_paper_is_one_sentence(hookbook, command):
    code, output, errors = hookbook(command, "sentimet-direction")
    assert code == 2 and output == ""
    assert "did you mean sentiment-direction" in errors and errors.count("\n") == 1


def test_run_prints_the_ledger_and_the_paths(hookbook, tmp_path, monkeypatch):
    path = tmp_path / f"{bad_notebooks.SLUG}.ipynb"
    notebooks.write(bad_notebooks.source(), path)
    monkeypatch.chdir(tmp_path)
    with bad_notebooks.tiny_catalogue():
        code, output, _ = hookbook("run", str(path), "-p", "templates", "16", "-p", "seed", "1", "--runs", "runs")
    assert code == 0 and "C1" in output and "holds" in output and "tiny-paper: done after" in output
    shown = [line.split()[1] for line in output.splitlines() if line.startswith(("notebook", "HTML"))]
    assert [line.split("/")[0] for line in shown] == ["runs", "runs"] and all(
        (tmp_path / name).exists() for name in shown
    )
    record = json.loads((tmp_path / shown[0]).with_name("run.json").read_text())
    assert record["parameters"]["templates"] == 16 and record["parameters"]["seed"] == 1


def test_run_fails_with_place_and_code_1(hookbook, toy, tmp_path):
    code, output, errors = hookbook("run", toy("seed\n1 / 0"), "--runs", str(tmp_path / "runs"))
    assert code == 1 and "line 2: 1 / 0" in errors and "ZeroDivisionError" in errors
    assert "traceback" in output and "toy: failed" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-p", "sede", "1"), "toy has no parameter sede; did you mean seed?"),
        (("-p", "seed", "-1"), "seed: -1 is outside 0..9."),
        (("-p", "seed=x"), "seed: expected int, got 'x' (str)."),
        (("-p", "seed"), "-p needs a name and a value, as in `-p seed 1`; the value of seed is missing."),
        (("--preset", "large"), "toy has no preset large; it has quick."),
    ],
)
def test_wrong_arguments_of_run(hookbook, toy, tmp_path, arguments, sentence):
    code, _, errors = hookbook("run", toy("seed"), "--runs", str(tmp_path / "runs"), *arguments)
    assert (code, errors) == (2, f"{sentence}\n") and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["run", "x", "-p", "seed", "1"], ["run", "x", "-p", "seed=1"]),
        (["run", "x", "-p", "seed=1", "-p", "a", "-2"], ["run", "x", "-p", "seed=1", "-p", "a=-2"]),
        (["run", "x", "--parameter", "a", "b=c"], ["run", "x", "--parameter", "a=b=c"]),
        (["run", "-p", "layers", "[1, 2]", "x"], ["run", "-p", "layers=[1, 2]", "x"]),
        (["run", "x", "-p"], ["run", "x", "-p"]),
    ],
)
def test_two_words_of_a_parameter_become_one(given, joined):
    assert cli.joined(given) == joined


@pytest.fixture
def evidence_runs(tmp_path, monkeypatch):
    """Runs of the evidence presets that end as told; returns the slugs that ran and that were kept."""
    ran, kept = [], []

    def play(endings, current=()):
        def run(slug, parameters, preset, **options):
            assert (parameters, preset) == ({}, "evidence")
            ran.append(slug)
            if endings[slug] == "refused":
                raise HookbookError("there is no such model")
            return RunRecord(slug, endings[slug], tmp_path, tmp_path, tmp_path, None, {}, "evidence", 1.0, None, None)

        monkeypatch.setattr(cli, "chosen", lambda slugs: slugs or list(endings))
        monkeypatch.setattr("helpers.batch.single.run", run)
        monkeypatch.setattr("helpers.batch.evidence.is_current", lambda slug: slug in current)
        monkeypatch.setattr("helpers.batch.evidence.keep", lambda record: kept.append(record.slug) or tmp_path)
        return ran, kept

    return play


def test_evidence_runs_what_is_behind_and_a_failure_stops_no_other(hookbook, evidence_runs):
    endings = {"one": "done", "two": "failed", "three": "refused", "four": "done", "five": "done"}
    ran, kept = evidence_runs(endings, current=("four",))
    code, output, errors = hookbook("evidence")
    assert ran == ["one", "two", "three", "five"] and kept == ["one", "five"]
    assert code == 1 and "four: the evidence that is kept is that of the notebook as it is now" in output
    assert errors == "three: there is no such model\n"
    assert hookbook("evidence", "four", "one")[0] == 0 and ran[4:] == ["four", "one"]  # named: whether behind or not


def test_an_interrupt_ends_all_evidence_runs(hookbook, evidence_runs):
    ran, kept = evidence_runs({"one": "interrupted", "two": "done"})
    assert hookbook("evidence")[0] == 130 and (ran, kept) == (["one"], [])


@pytest.mark.parametrize("arguments", [("-p", "seed", "1", "--preset", "evidence"), ("-p", "model_name", "gpt2")])
def test_keep_refuses_what_is_not_the_evidence_preset(hookbook, arguments, monkeypatch):
    monkeypatch.setattr("helpers.batch.single.run", lambda *_, **__: pytest.fail("it ran"))
    code, _, errors = hookbook("run", "sentiment-direction", "--keep", *arguments)
    assert code == 2 and "--keep files the evidence preset as it is, on any model" in errors


def test_keep_takes_the_evidence_preset_on_another_model(hookbook, evidence_runs, monkeypatch, tmp_path):
    _, kept = evidence_runs({})
    asked = []
    record = RunRecord("x", "done", tmp_path, tmp_path, tmp_path, None, {}, "evidence", 1.0, None, None)
    monkeypatch.setattr("helpers.batch.single.run", lambda *given, **_: asked.append(given[1:3]) or record)
    arguments = ("-p", "model_name", "gpt2", "-p", "revision", "v1", "--preset", "evidence", "--keep")
    assert hookbook("run", "x", *arguments)[0] == 0
    assert asked == [({"model_name": "gpt2", "revision": "v1"}, "evidence")] and kept == ["x"]


def test_check_lists_problems_and_fails(hookbook, tmp_path):
    with bad_notebooks.tiny_catalogue():
        good = bad_notebooks.broken("stale-libraries", tmp_path)
        code, output, _ = hookbook("check", str(good))
        assert code == 0 and "advice only" in output
        code, output, _ = hookbook("check", str(bad_notebooks.broken("nothing-to-do", tmp_path)))
    assert code == 1 and "a TODO is left [nothing-to-do]" in output and "1 problem" in output


def test_refresh_writes_the_file(hookbook, tmp_path, monkeypatch):
    path = tmp_path / f"{bad_notebooks.SLUG}.ipynb"
    notebooks.write(bad_notebooks.source(), path)
    monkeypatch.setattr("helpers.batch.refresh.RUNS", tmp_path / "runs")
    with bad_notebooks.tiny_catalogue():
        code, output, _ = hookbook("refresh", str(path))
    assert code == 0 and "tiny-paper: done" in output
    assert notebooks.ledger(path)["claims"][0]["verdict"] == "holds"


def test_student_writes_a_copy_and_keeps_edited_ones(hookbook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = str(bad_notebooks.FOLDER / "good.ipynb")
    code, output, _ = hookbook("student", good)
    assert (code, output) == (0, "wrote good-student.ipynb; every check in it says `not yet`\n")
    assert hookbook("student", good)[0] == 0
    (tmp_path / "good-student.ipynb").write_text("my work")
    code, _, errors = hookbook("student", good)
    assert code == 2 and "holds somebody's work and stays" in errors
    assert hookbook("student", good, "--out", "another.ipynb")[0] == 0 and (tmp_path / "another.ipynb").is_file()


def test_power_plans_for_open_claims(hookbook):
    code, output, _ = hookbook("power", "sentiment-direction")
    assert code == 0 and "run on smollm2-135m" in output


def test_compare_prints_a_table_and_the_figures_path(hookbook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output, _ = hookbook("compare", "smollm2-135m", "smollm2-135m", "sentiment-direction", "--out", "figures")
    path = "figures/compare-smollm2-135m-smollm2-135m-sentiment-direction.png"
    assert code == 0 and f"figure   {path}" in output and (tmp_path / path).is_file()
    assert "verdicts agree (100%)" in output and "No split-half ceiling" in output
    code, _, errors = hookbook("compare", "smollm2-135m", "gpt2")
    assert code == 2 and "No evidence run of gpt2" in errors and errors.count("\n") == 1
    code, _, errors = hookbook("compare", "smollm2-135m", "gpt2", "--runs", "none")
    assert code == 2 and "none holds no finished run on smollm2-135m" in errors


def test_models_lists_the_default(hookbook):
    code, output, _ = hookbook("models")
    assert code == 0 and "smollm2-135m" in output and "Apache-2.0" in output
    assert "fresh-blocks:" in output and "permuted within each tensor" in output


def test_gallery_prints_what_the_readme_holds(hookbook):
    code, output, _ = hookbook("gallery")
    assert code == 0 and "planned" in output.lower() and "|" in output


LIGHT = """
import sys
from helpers import cli
for arguments in (["list"], ["show", "sentiment-direction"], ["models"], ["run", "no-such-paper"]):
    sys.argv = ["hookbook", *arguments]
    try:
        cli.main()
    except SystemExit:
        pass
import nbformat.v4
heavy = ("torch", "transformers", "pandas", "papermill", "rfc3987_syntax", "lark")
print([name for name in heavy if sys.modules.get(name)])
"""


def test_light_commands_load_neither_torch_nor_pandas():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m helpers.cli list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


# doctor


@pytest.fixture
def unreachable(monkeypatch):
    """The hub's address answers nothing, at once."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


def test_doctor_fits_one_screen(hookbook, unreachable):
    code, output, _ = hookbook("doctor")
    assert len(output.splitlines()) <= 24
    names = ("Python", "packages", "clashes", "cores", "memory", "disk", "model", "hub")
    assert all(name in output for name in names)
    assert "not reachable (fine: the default model needs none)" in output
    assert code == (1 if "broken" in output.split() else 0)


def test_doctor_fails_where_something_is_broken(hookbook, unreachable, monkeypatch, tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("# a comment\nnot-there-at-all==1.0\n")
    monkeypatch.setattr(doctor, "LOCK", lock)
    code, output, _ = hookbook("doctor")
    assert code == 1 and "missing: not-there-at-all" in output and "make setup" in output


def test_packages_are_compared_with_the_lock(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("nbformat==0.1\nhypothesis==999\n")
    finding = doctor.packages(lock)[0]
    assert not finding.broken and finding.state == "notice" and "nbformat" in finding.value and "0.1" in finding.value
    assert doctor.packages(tmp_path / "none")[0].state == "notice"


def test_a_clash_is_broken(monkeypatch):
    def pip(*_, **__):
        answer = "sae-lens 6.0 has requirement transformer-lens<4, but you have transformer-lens 4.3.0.\n"
        return subprocess.CompletedProcess([], 1, answer, "")

    monkeypatch.setattr(subprocess, "run", pip)
    finding = doctor.clashes()
    assert finding.broken and "sae-lens" in finding.value and "environment of its own" in finding.advice


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache_is_broken(monkeypatch, tmp_path):
    tmp_path.chmod(0o500)
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path / "cache"))
    assert doctor._cache()[0].broken and "HOOKBOOK_CACHE" in doctor._cache()[0].advice
