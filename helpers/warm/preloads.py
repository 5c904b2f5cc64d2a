"""Which models a notebook will load, read off its code, so that a warm process can hold them."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from helpers import cells, notebooks

_ABSENT = object()


def preloads(notebook: Path | str | NotebookNode, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The calls of `load_model` whose arguments are literals or parameters, each as keyword arguments.

    A call with any other argument is left out, and so is one for another device than the CPU: such a model is loaded
    when the cell runs. Nothing is executed, and no name is checked.

    Args:
        notebook: the notebook or its path.
        parameters: values that differ from those in the cells tagged `parameters` and `injected-parameters`.

    Raises:
        HookbookError: the notebook cannot be read.
    """
    nb = notebook if isinstance(notebook, NotebookNode) else notebooks.read(notebook)
    known: dict[str, Any] = {}
    found: list[dict[str, Any]] = []
    for cell in nb.cells:
        tree = cells.tree(cell.source) if cell.cell_type == "code" else None
        if tree is None:
            continue
        if notebooks.has_tag(cell, "parameters") or notebooks.has_tag(cell, "injected-parameters"):
            known |= dict(_assigned(tree))
            continue
        values = {**known, **(parameters or {})}
        for call in ast.walk(tree):
            arguments = _arguments(call, values) if isinstance(call, ast.Call) else None
            if arguments is not None and arguments.get("device", "cpu") == "cpu" and arguments not in found:
                found.append(arguments)
    return found


def _assigned(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Names of a parameters cell with their literal values."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = _value(getattr(node, "value", None), {})
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and value is not _ABSENT:
            yield targets[0].id, value


def _arguments(call: ast.Call, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call of `load_model` by name; None where it is none, or one of them is not known."""
    name = getattr(call.func, "id", getattr(call.func, "attr", None))
    if name != "load_model" or len(call.args) > 1 or any(keyword.arg is None for keyword in call.keywords):
        return None
    nodes = {keyword.arg: keyword.value for keyword in call.keywords}
    if call.args:
        nodes["name"] = call.args[0]
    arguments = {name: _value(node, values) for name, node in nodes.items()}
    return None if _ABSENT in arguments.values() else arguments


def _value(node: ast.expr | None, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return values.get(node.id, _ABSENT)
    try:
        return _ABSENT if node is None else ast.literal_eval(node)
    except ValueError:
        return _ABSENT
