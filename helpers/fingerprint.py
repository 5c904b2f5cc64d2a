"""What a result depends on, as hashes: names runs, stamps notebooks, and tells when a stamp is stale."""

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, from_dict

from helpers import cells, models, notebooks, papers
from helpers.errors import HookbookError

# helpers that only show, look up or drive: they change no measurement (the paper's own entry is hashed by itself)
SHOWING = ("errors", "papers", "plots", "strict_yaml", "tables", "widgets")
DRIVING = ("audit", "batch", "checks", "cli", "compare", "doctor", "gallery", "power", "skeleton", "student", "warm")
LIBRARIES = ("torch", "transformers", "transformer-lens", "numpy", "scipy", "scikit-learn")
_IRRELEVANT = ("ctx", "kind", "type_comment", "type_ignores")  # fields of syntax trees that change nothing at run time


@dataclass(frozen=True)
class Fingerprint:
    """Hashes of what a result depends on: `hard` decides, and `id` is its short hash; `soft` is only listed."""

    hard: dict[str, str]
    soft: dict[str, str]

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that name a run."""
        return digest(json.dumps(self.hard, sort_keys=True))[:12]


@dataclass(frozen=True)
class Shared:
    """The part of a notebook's fingerprints that its parameters leave alone: a sweep hashes it once.

    Attributes:
        hard: as in `Fingerprint`, without parameters and model.
        soft: as in `Fingerprint`.
        model: whether the weights of `model_name` belong to the fingerprint.
        files: what was hashed beside the notebook itself.
    """

    hard: dict[str, str]
    soft: dict[str, str]
    model: bool
    files: tuple[Path, ...]

    def complete(self, parameters: dict[str, Any]) -> Fingerprint:
        """The fingerprint of a run with these parameters (all of them, typed).

        Raises:
            HookbookError: the model is not on this machine.
        """
        hard = self.hard | {"parameters": digest(json.dumps(parameters, sort_keys=True))}
        if self.model:
            hard["model"] = models.model_sha256(parameters["model_name"], revision=parameters.get("revision"))
        return Fingerprint(hard, self.soft)


def fingerprint(path: Path, parameters: dict[str, Any]) -> Fingerprint:
    """The fingerprint of a notebook run with these parameters (all of them, typed).

    Hard: code cells, parameters, the model's weights, the paper's entry in the catalogue, the data files it names, and
    the measuring helpers imported directly or through others. Soft: what draws, and the versions of the libraries.
    Comments, docstrings, layout and prose count nowhere.

    Raises:
        HookbookError: the notebook, a data file or the model cannot be read.
    """
    return shared(path).complete(parameters)


def shared(path: Path) -> Shared:
    """What all fingerprints of a notebook have in common.

    Raises:
        HookbookError: the notebook or a data file cannot be read.
    """
    nb = notebooks.read(path)
    code = [cell.source for cell in notebooks.code_cells(nb) if not notebooks.has_tag(cell, "parameters")]
    modules = _helper_modules(cells.imports(code))
    files = [_module_file(name) for name in modules]
    hard = {
        "code": digest("\n".join(_canonical_cell(source) for source in code)),
        **{name: digest(_canonical_module(name)) for name in modules if name not in _showing()},
    }
    slug = Path(path).stem
    if slug in papers.catalogue():
        # what teachers read, and what an audit varies, is in no output: it may be edited without a new run
        entry = {name: value for name, value in papers.raw_entry(slug).items() if name not in ("teaching", "audit")}
        hard["catalogue entry"] = digest(json.dumps(entry, sort_keys=True, default=str))
        data = papers.paper(slug).data_files
        hard |= {f"data/{file.relative_to(papers.ROOT / 'data').as_posix()}": _file(file) for file in data}
        files += [papers.CATALOGUE, *data]
    soft = {name: digest(_canonical_module(name)) for name in modules if name in _showing()}
    return Shared(hard, soft | versions(), loads_model(nb), tuple(files))


def loads_model(nb: NotebookNode) -> bool:
    """Whether the notebook loads its `model_name` through helpers, and does not train what bears that name itself."""
    code = notebooks.code_cells(nb)
    named = any(parameter.name == "model_name" for parameter in notebooks.parameters(nb))
    return named and "helpers.models" in cells.imports(cell.source for cell in code)


def differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """The names under which two parts of fingerprints differ."""
    return [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]


def versions() -> dict[str, str]:
    """The installed versions of the libraries that results depend on."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name).split("+")[0]  # a CPU build is the same version
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def stamp(nb: NotebookNode, print_: Fingerprint, **facts: Any) -> None:
    """Write fingerprint and provenance into the notebook's metadata: what a kernel cannot know about its own run.

    Args:
        nb: the executed notebook; changed in place.
        print_: its fingerprint, taken before it ran.
        facts: preset, parameters, seconds, peak_private_mb ... as the runner measured them.
    """
    parameters = facts.get("parameters", {})
    provenance = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": versions(),
        "model": parameters.get("model_name"),
        "model_sha256": print_.hard.get("model"),
        "seed": parameters.get("seed"),
        **_commit(),
        **facts,
    }
    nb.metadata["hookbook"] = from_dict({"fingerprint": {"id": print_.id, **asdict(print_)}, "provenance": provenance})


def digest(text: str | bytes) -> str:
    """The sha256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def _canonical_cell(source: str) -> str:
    tree = cells.tree(source)
    if tree is None:  # magics: only outer white space is free
        return "\n".join(line.rstrip() for line in source.strip().splitlines())
    return _canonical(tree)


def _canonical_module(name: str) -> str:
    tree = ast.parse(_module_file(name).read_text(encoding="utf-8"))
    return _canonical(tree, docstring=True)


def _canonical(node: Any, docstring: bool = False) -> str:
    """A syntax tree as text that is the same under every version of Python (`ast.dump` and `ast.unparse` differ)."""
    if isinstance(node, list):
        return "[" + ",".join(map(_canonical, node)) + "]"
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__}:{node!r}"
    fields = []
    for name, value in ast.iter_fields(node):
        if name in _IRRELEVANT or value is None and not isinstance(node, ast.Constant) or value == []:
            continue
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if name == "body" and (named or docstring) and ast.get_docstring(node, clean=False) is not None:
            value = value[1:]
        fields.append(f"{name}={_canonical(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _helper_modules(imported: set[str]) -> list[str]:
    """The modules of helpers that these imports reach, sorted; what only draws is named but not followed."""
    found: set[str] = set()
    waiting = {name for name in imported if name.split(".")[0] == "helpers"}
    while waiting:
        name = waiting.pop()
        if name in found or _module_file(name) is None or name.split(".")[1:2] in [[part] for part in DRIVING]:
            continue
        found.add(name)
        if name in _showing():
            continue
        package = name if _module_file(name).name == "__init__.py" else name.rpartition(".")[0]
        for other in cells.imports([_module_file(name).read_text(encoding="utf-8")]):
            absolute = importlib.util.resolve_name(other, package)
            if absolute.split(".")[0] == "helpers":
                waiting.add(absolute)
    return sorted(found)


def _showing() -> tuple[str, ...]:
    return tuple(f"helpers.{name}" for name in SHOWING)


def _module_file(name: str) -> Path | None:
    place = papers.ROOT.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _file(path: Path) -> str:
    try:
        return digest(path.read_bytes())
    except OSError as error:
        raise HookbookError(
            f"Cannot read the data file {path.relative_to(papers.ROOT).as_posix()} ({error.strerror}); "
            "restore it from the repository or correct `data:` in data/papers.yaml."
        ) from None


def _commit() -> dict[str, Any]:
    """The commit that the run started from (a file cannot name its own) and whether files differed from it."""
    try:
        call = {"cwd": papers.ROOT, "capture_output": True, "text": True, "check": True, "timeout": 20}
        head = subprocess.run(["git", "rev-parse", "HEAD"], **call).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain"], **call).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {"parent_commit": None, "dirty": None}
    return {"parent_commit": head, "dirty": bool(changed)}
