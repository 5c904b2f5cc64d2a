"""Where in a YAML file something stands, and the values that YAML reads otherwise than people do."""

import re
from pathlib import Path

import yaml

from helpers.errors import HookbookError

SEXAGESIMAL = re.compile(r"[-+]?\d+(:\d+)+")


def refuse_base_sixty(path: Path, root: yaml.MappingNode) -> None:
    """Refuse what YAML 1.1 takes for a number to the base sixty (1:30 is 90), except directly under `grid:`.

    Raises:
        HookbookError: there is one; names file and line.
    """
    grids = [grid for key, grid in root.value if key.value == "grid" and isinstance(grid, yaml.MappingNode)]
    ranges = [id(value) for grid in grids for _, value in grid.value]
    waiting: list[yaml.Node] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif node.tag.endswith((":int", ":float")) and SEXAGESIMAL.fullmatch(node.value) and id(node) not in ranges:
            raise HookbookError(
                f"{path}, line {node.start_mark.line + 1}: YAML reads {node.value} as a number to the base sixty: put "
                f"text in quotes; a range stands directly behind its name under `grid:`."
            )


def line(root: yaml.MappingNode, location: tuple[str | int, ...]) -> int:
    """The line of the field that pydantic complains about, or of the nearest thing above it."""
    node, line = root, root.start_mark.line
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(part)), None)
            if found is None:
                continue  # the member of a union that pydantic tried
            line, node = found[0].start_mark.line, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
    return line + 1


def named(root: yaml.MappingNode, message: str) -> tuple[str | int, ...]:
    """Where the file has the parameter, the notebook or the field that a sentence is about, by name and value."""
    words = set(re.findall(r"[\w.-]+\w", message)) | set(re.findall(r"\w+", message))
    found: list[tuple[bool, tuple[str | int, ...]]] = []
    for key, value in root.value:
        members = enumerate(value.value) if isinstance(value, yaml.SequenceNode) else [(None, value)]
        for index, member in members:
            place = (key.value,) if index is None else (key.value, index)
            if isinstance(member, yaml.MappingNode):
                inner = [(name.value, one) for name, one in member.value if name.value in words]
                found += [(bool(_texts(one) & words), (*place, name)) for name, one in inner]
            elif key.value == "notebook" and {member.value, Path(member.value).name} & words:
                found.append((True, place))
            elif key.value in ("name", "preset") and key.value in words:
                found.append((False, place))
    return max(found, key=lambda one: one[0], default=(False, ()))[1]


def _texts(node: yaml.Node) -> set[str]:
    members = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return {one.value for one in members if isinstance(one, yaml.ScalarNode)}
