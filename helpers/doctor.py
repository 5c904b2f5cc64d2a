"""`hookbook doctor`: whether this machine is ready, on one screen."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from helpers.papers import ROOT

LOCK = ROOT / "requirements.lock"
APART = ("sae-lens", "circuit-tracer")  # both exclude TransformerLens 4; pip installs them by breaking ours
_DEFAULT_MODEL = "smollm2-135m"
_NEEDED_MB = 2500  # the default model with its bridge, and what a notebook adds
_DISK_MB = 1500
_TIMEOUT_S = 3


@dataclass(frozen=True)
class Finding:
    """One line of the report: `state` is good, notice or broken; `advice` says what to do."""

    name: str
    state: str
    value: str
    advice: str = ""

    @property
    def broken(self) -> bool:
        """Whether notebooks will not run before this is mended."""
        return self.state == "broken"


def diagnose() -> list[Finding]:
    """Look at everything; never raises, never fetches, and asks the hub for at most three seconds."""
    return [_python(), *packages(LOCK), clashes(), _cores(), _memory(), *_cache(), _hub()]


def print_report(findings: list[Finding], console: Console) -> None:
    """Print the findings, one line each, and what to do about those that are not good."""
    marks = {"good": "[green]ok[/]", "notice": "[yellow]note[/]", "broken": "[red]broken[/]"}
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        advice = f"\n→ {finding.advice}" if finding.advice else ""
        table.add_row(marks[finding.state], finding.name, escape(finding.value + advice))
    console.print(table)
    broken = sum(finding.broken for finding in findings)
    console.print(f"\n{broken} to mend" if broken else "\nready: `hookbook run sentiment-direction`")


def packages(lock: Path) -> list[Finding]:
    """The installed packages against the lock: a missing one is broken, another version a notice."""
    try:
        wanted = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))
    except OSError:
        return [Finding("packages", "notice", f"{lock.name} is missing", "restore it from the repository")]
    missing, other = [], []
    for name, version in wanted.items():
        try:
            found = importlib.metadata.version(name).split("+")[0]  # torch's CPU build is the same version
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if found != version:
            other.append(f"{name} {found} (tested: {version})")
    findings = []
    if missing:
        findings.append(Finding("packages", "broken", f"missing: {_some(missing)}", "make setup"))
    if other:
        findings.append(Finding("packages", "notice", _some(other), "if results differ, `make setup` restores them"))
    return findings or [Finding("packages", "good", f"all {len(wanted)} as tested")]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", "good", f"{version} in {sys.prefix}")


def clashes() -> Finding:
    """What pip says about installed packages that exclude each other's versions."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return Finding("clashes", "notice", "pip does not answer", "`python -m pip check` shows why")
    if answer.returncode == 0:
        return Finding("clashes", "good", f"none ({' and '.join(APART)} would clash: give them an own environment)")
    complaints = answer.stdout.strip().splitlines() or answer.stderr.strip().splitlines()
    if any(re.match(rf"{name}\b", line) for name in APART for line in complaints):
        advice = "this package cannot live beside TransformerLens 4: use it in an environment of its own"
    else:
        advice = "`make clean` and `make setup` begin anew"
    return Finding("clashes", "broken", _some(complaints), advice)


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("cores", "good", f"{usable}")


def _memory() -> Finding:
    free, total = (value / 2**20 for value in (psutil.virtual_memory().available, psutil.virtual_memory().total))
    value = f"{free / 1024:.1f} of {total / 1024:.1f} GB free"
    if free < _NEEDED_MB:
        return Finding("memory", "notice", value, f"the default model needs {_NEEDED_MB / 1024:.1f}: close something")
    return Finding("memory", "good", value)


def _cache() -> list[Finding]:
    """The cache folder, its disk, and whether the default model is in it."""
    from helpers import models  # here, because it imports torch

    folder = models.cache_dir()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK):
        return [Finding("cache", "broken", f"cannot write to {folder}", "set HOOKBOOK_CACHE to a folder of yours")]
    free = shutil.disk_usage(existing).free / 2**20
    space = f"{free / 1024:.1f} GB free at {folder}"
    cached = {model.name: model.cached for model in models.MODELS}.get(_DEFAULT_MODEL, False)
    low = free < (200 if cached else _DISK_MB)
    advice = "free some, or set HOOKBOOK_CACHE to another disk"
    disk = Finding("disk", "broken", space, advice) if low else Finding("disk", "good", space)
    if cached:
        return [disk, Finding("model", "good", f"{_DEFAULT_MODEL} is in the cache")]
    fetching = f"the first run fetches it, or `hookbook models fetch {_DEFAULT_MODEL}` now"
    return [disk, Finding("model", "notice", f"{_DEFAULT_MODEL} is not in the cache", fetching)]


def _hub() -> Finding:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return Finding("hub", "good", "switched off by HF_HUB_OFFLINE (fine: the default model needs none)")
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        pass  # it answered
    except (OSError, ValueError):
        return Finding("hub", "good", "not reachable (fine: the default model needs none)")
    return Finding("hub", "good", f"reachable at {constants.ENDPOINT}")
