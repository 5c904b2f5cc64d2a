"""A notebook as a file: reading, parameters, sections, the ledger in its outputs, and the copy that is committed."""

import os
import re
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from helpers import cells
from helpers import parameters as parameters_cell
from helpers.errors import HookbookError
from helpers.papers import ROOT
from helpers.parameters import Parameter, validate

__all__ = [
    "LEDGER_MIME",
    "clean",
    "code_cells",
    "has_tag",
    "heading",
    "ledger",
    "parameters",
    "read",
    "strings",
    "text_of",
    "unread_parameters",
    "validate",
    "write",
    "write_text",
]

LEDGER_MIME = "application/vnd.hookbook.ledger+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def read(path: Path | str) -> NotebookNode:
    """The notebook at that path, in the current format.

    Raises:
        HookbookError: there is no such file, or it is no notebook.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise HookbookError(f"Cannot read the notebook {path} ({error.strerror}); check the path.") from None
    try:
        return nbformat.reads(text, as_version=4)
    except Exception as error:  # nbformat raises what its validator and the JSON reader raise
        reason = str(error).splitlines()[0][:200]
        raise HookbookError(f"{path} is not a valid notebook ({reason}); restore it or save it again.") from None


def write(nb: NotebookNode, path: Path) -> None:
    """Write a notebook beside its place and rename it, so that a kill leaves the old file or the new one."""
    write_text(path, nbformat.writes(nb) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text beside its place and rename it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())  # mkstemp's 0600 would hide the file from a colleague
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def has_tag(cell: NotebookNode, tag: str) -> bool:
    """Whether the cell carries the tag."""
    return tag in cell.metadata.get("tags", [])


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """The code cells that hold code, without papermill's injected one."""
    return [
        cell
        for cell in nb.cells
        if cell.cell_type == "code" and cell.source.strip() and not has_tag(cell, "injected-parameters")
    ]


def parameters(path: Path | str | NotebookNode) -> list[Parameter]:
    """The parameters of a notebook, in the order of its cell tagged `parameters`.

    Raises:
        HookbookError: no cell or several carry the tag, or the cell holds something else than commented literals.
    """
    nb, name = _opened(path)
    tagged = [cell for cell in nb.cells if cell.cell_type == "code" and has_tag(cell, "parameters")]
    if len(tagged) != 1:
        raise HookbookError(f"{name} needs exactly one code cell tagged `parameters`, it has {len(tagged)}.")
    return parameters_cell.parse(tagged[0].source, f"the parameters cell of {name}")


def unread_parameters(path: Path | str | NotebookNode) -> list[str]:
    """The names of parameters that no later code cell reads before giving them another value."""
    nb, _ = _opened(path)
    code = code_cells(nb)
    start = next(index for index, cell in enumerate(code) if has_tag(cell, "parameters"))
    names = [parameter.name for parameter in parameters(nb)]
    return cells.unread(names, [cell.source for cell in code[start + 1 :]])


def heading(nb: NotebookNode, index: int) -> str:
    """The last heading at or above cell `index`, without its marks; what people call the place they are in."""
    for cell in reversed(nb.cells[: index + 1]):
        if cell.cell_type == "markdown":
            found = re.findall(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", without_code(cell.source), flags=re.MULTILINE)
            if found:
                return found[-1]
    return "the beginning"


def without_code(markdown: str) -> str:
    """Markdown without its fenced code blocks, where a `#` is no heading and a digit no measurement."""
    return re.sub(r"^([ \t]*)(`{3,}|~{3,}).*?^[ \t]*\2[`~]*[ \t]*$", "", markdown, flags=re.MULTILINE | re.DOTALL)


def ledger(path: Path | str | NotebookNode) -> dict[str, Any] | None:
    """The last ledger in the outputs, as the JSON that `Ledger.table` shows; None where there is none."""
    nb, _ = _opened(path)
    for cell in reversed(nb.cells):
        for output in reversed(cell.get("outputs", [])):
            if LEDGER_MIME in output.get("data", {}):
                return output["data"][LEDGER_MIME]
    return None


def text_of(value: str | list[str]) -> str:
    """A text of the notebook format, which may be one string or a list of lines."""
    return value if isinstance(value, str) else "".join(value)


def strings(value: Any) -> Iterator[str]:
    """All texts in nested lists and mappings, such as an output; the lines of one text are joined."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(line, str) for line in value):
        yield "".join(value)
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def clean(nb: NotebookNode) -> NotebookNode:
    """The notebook as it is committed: nothing volatile, nothing that only this machine knows, no widget state.

    Sources, cell ids, tags and the stamp stay; execution counts become 1..n; an injected-parameters cell is refused,
    because dropping it would leave outputs that the parameters shown did not produce.

    Raises:
        HookbookError: the notebook was run with other parameters than its own.
    """
    if any(has_tag(cell, "injected-parameters") for cell in nb.cells):
        raise HookbookError("This notebook ran with other parameters than its own; run it with its defaults first.")
    nb = nbformat.from_dict(nb)
    stamp = nb.metadata.get("hookbook")
    nb.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    if stamp:
        nb.metadata["hookbook"] = stamp
    count = 0
    for cell in nb.cells:
        kept = {key: cell.metadata[key] for key in ("tags", "jupyter") if cell.metadata.get(key)}
        cell.metadata = nbformat.from_dict(kept)
        if cell.cell_type != "code":
            continue
        count += bool(cell.source.strip())
        cell.execution_count = count if cell.source.strip() else None
        cell.outputs = [output for output in map(_clean_output, cell.outputs) if output]
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
    return nb


def _clean_output(output: NotebookNode) -> NotebookNode | None:
    output.pop("transient", None)
    if output.output_type == "stream":
        output.text = _portable(text_of(output.text))
        return output if output.text.strip() else None
    if "data" not in output:
        return output
    output.metadata = nbformat.from_dict({})
    if WIDGET_VIEW in output.data:  # without its state JupyterLab shows "model not found": the static twin stays
        del output.data[WIDGET_VIEW]
        output.data.pop("text/plain", None)
    for mime, value in output.data.items():
        if mime.startswith("text/") or mime == "image/svg+xml":
            value = _portable(text_of(value))
            output.data[mime] = _ADDRESS.sub("0x…", value) if mime == "text/plain" else value
    return output if output.data else None


def _portable(text: str) -> str:
    """Text without the folders of this machine."""
    text = re.sub(r"[^\s\"'(<]*ipykernel_\d+[/\\]\d+\.py", "this cell", text)
    library = sysconfig.get_paths()
    places = {str(ROOT): "", library["purelib"]: "", library["stdlib"]: "", str(Path.home()): "~/"}
    for place, replacement in places.items():
        text = re.sub(rf"(?<![\w.]){re.escape(place)}[/\\]", replacement, text)
    return text


def _opened(path: Path | str | NotebookNode) -> tuple[NotebookNode, str]:
    if isinstance(path, NotebookNode):
        return path, "the notebook"
    return read(path), Path(path).name


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
