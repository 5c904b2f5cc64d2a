"""Docstrings as they are written here, in Markdown's manner, become what autodoc reads."""

import re

from sphinx.application import Sphinx

_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_EMPHASIS = re.compile(r"(?<![\w*])\*[^\s*](?:[^*\n]*[^\s*])?\*(?![\w*])")
# what numpy's ArrayLike becomes when it is evaluated
_ARRAY_LIKE = re.compile(r"~?[\w.]*_Buffer \| .*?_NestedSequence\[complex \| bytes \| str\]")
_MARKS = re.compile(r"([*|]|(?<=\w)_(?!\w))")


def as_rest(lines: list[str]) -> list[str]:
    """The lines of a docstring as reStructuredText: single backticks are code, tables keep their columns."""
    found: list[str] = []
    table: list[str] = []
    for line in [*lines, ""]:
        if line.lstrip().startswith("|"):
            table.append(line)
            continue
        if table:
            found += _table(table)
            table = []
        found.append(_inline(line))
    return found[:-1]


def _inline(line: str) -> str:
    parts, end = [], 0
    for code in _CODE.finditer(line):
        parts += [_escaped(line[end : code.start()]), f"``{code[2]}``"]
        end = code.end()
    return "".join([*parts, _escaped(line[end:])])


def _escaped(text: str) -> str:
    parts, end = [], 0
    for emphasis in _EMPHASIS.finditer(text):
        parts += [_MARKS.sub(r"\\\1", text[end : emphasis.start()]), emphasis[0]]
        end = emphasis.end()
    return "".join([*parts, _MARKS.sub(r"\\\1", text[end:])])


def _table(lines: list[str]) -> list[str]:
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    found = ["", f"{indent}.. list-table::", f"{indent}   :header-rows: 1", ""]
    for row in rows:
        found += [f"{indent}   {'* -' if index == 0 else '  -'} {_inline(cell)}" for index, cell in enumerate(row)]
    return [*found, ""]


def _process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    # napoleon takes what stands before a colon in the first line of a property for its type
    lines[:] = ["", *as_rest(lines)] if what in ("attribute", "data", "property") else as_rest(lines)


def _sign(app: Sphinx, what: str, name: str, obj: object, options: object, *signature: str | None) -> tuple:
    return tuple(_ARRAY_LIKE.sub("ArrayLike", part) if part else part for part in signature)


def _skip(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    # the docstring of a named tuple's field is "Alias for field number 0"
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Come before napoleon, which reads the sections of a docstring."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-process-signature", _sign)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
