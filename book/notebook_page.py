"""A committed notebook as a page: what the catalogue says of it on top, code folded, an anchor at every cell."""

import re
from collections.abc import Mapping

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from book.relink import relink
from helpers import notebooks
from helpers.errors import HookbookError

_WIDGET = re.compile(r"\bwidgets\.\w+\(")
_CLAIM_HEADING = re.compile(r"^## (C[1-9]\d?[a-z]?)\b", re.MULTILINE)
_UNFOLDED = ("parameters", "exercise")  # what a reader is meant to look at, and to fill in
_NO_KERNEL = "*Where a kernel runs, this cell draws sliders; the picture beside it stands for them here.*"


def page(nb: NotebookNode, file: str, head: str, foot: str, pages: Mapping[str, str]) -> NotebookNode:
    """The notebook as myst-nb shall read it.

    Args:
        nb: the committed notebook, whose first cell says what `head` says.
        file: its path from the root.
        head: Markdown for the top of the page.
        foot: Markdown for its end.
        pages: as for `relink`.

    Raises:
        HookbookError: a cell ended in an error, or one has no outputs where it should.
    """
    _refuse_errors(nb, file)
    cells = [new_markdown_cell(head, id="page-head")]
    for cell in nb.cells[1:]:
        anchor = f'<div class="anchor" id="{cell.id}"></div>'
        if cell.cell_type == "markdown":
            cells.append(new_markdown_cell(f"{anchor}\n\n{relink(cell.source, file, pages)}", id=cell.id))
            continue
        if cell.cell_type == "code":
            cells += [new_markdown_cell(anchor, id=f"at-{cell.id}"), _code(cell)]
            if _WIDGET.search(cell.source) and not cell.outputs:
                cells.append(new_markdown_cell(_NO_KERNEL, id=f"no-kernel-{cell.id}"))
    cells.append(new_markdown_cell(foot, id="page-foot"))
    # the least that names the language: a page does not depend on what else the notebook's metadata say
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return NotebookNode(cells=cells, metadata=NotebookNode(metadata), nbformat=4, nbformat_minor=5)


def sections(nb: NotebookNode) -> dict[str, str]:
    """Claim -> the anchor of the cell whose heading it is."""
    found = {}
    for cell in nb.cells:
        if cell.cell_type == "markdown" and (heading := _CLAIM_HEADING.search(cell.source)):
            found.setdefault(heading[1], cell.id)
    return found


def _code(cell: NotebookNode) -> NotebookNode:
    tags = list(cell.metadata.get("tags", []))
    folded = [] if any(tag in tags for tag in _UNFOLDED) or not cell.source.strip() else ["hide-input"]
    if "solution" in tags:
        folded = ["hide-cell"]
    shown = NotebookNode(cell)
    shown.metadata = NotebookNode(tags=[*tags, *folded])
    # the page reads the ledger from the notebook; here it would only be an unknown kind of output
    for output in shown.outputs:
        output.get("data", {}).pop(notebooks.LEDGER_MIME, None)
    return shown


def _refuse_errors(nb: NotebookNode, file: str) -> None:
    for index, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                place = f"{file}, {notebooks.heading(nb, index)}, cell {cell.get('id', index)}"
                raise HookbookError(f"{place} ended in {output.ename}: refresh the notebook.")
