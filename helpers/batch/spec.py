"""What a sweep is asked to do, from a command line or a YAML file, checked for its form alone."""

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, PrivateAttr, ValidationError

from helpers.batch import grids, yaml_places
from helpers.errors import HookbookError
from helpers.strict_yaml import read_yaml

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


class Spec(BaseModel):
    """A sweep as asked for. `notebook` is one slug or path, or a list of them, each with the same points.

    The points are every combination of the grid, and after them the points that are listed; each also gets the
    parameters that are fixed for all.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str | None = None
    notebook: str | Annotated[list[str], Field(min_length=1)]
    preset: str = "quick"
    parameters: dict[str, JsonValue] = {}
    grid: dict[str, JsonValue] = {}
    points: list[dict[str, JsonValue]] = []
    workers: Annotated[int, Field(ge=1)] | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None
    memory: Annotated[float, Field(gt=0)] | None = None
    retries: Annotated[int, Field(ge=0)] = 1
    stay: bool = False
    _origin: tuple[Path, yaml.MappingNode] | None = PrivateAttr(None)  # the file, if it came from one

    @property
    def notebooks(self) -> list[str]:
        """The slugs or paths."""
        return [self.notebook] if isinstance(self.notebook, str) else list(self.notebook)

    def given(self) -> list[dict[str, Any]]:
        """The parameters of each point, not yet typed.

        Raises:
            HookbookError: a grid that cannot be read, or a parameter both fixed and varied.
        """
        grid = {name: _values(name, value) for name, value in self.grid.items()}
        found = grids.points(grid) if grid or not self.points else []
        for varied in [*found[:1], *self.points]:
            if twice := sorted(set(varied) & set(self.parameters)):
                raise HookbookError(f"{twice[0]} is both fixed and varied: take it out of one of the two.")
        return [self.parameters | point for point in [*found, *self.points]]

    def blame(self, error: HookbookError) -> HookbookError:
        """The error with the file and the line that it is about, where the sweep came from a file."""
        if self._origin is None:
            return error
        path, root = self._origin
        location = yaml_places.named(root, str(error))
        return HookbookError(f"{path}{f', line {yaml_places.line(root, location)}' if location else ''}: {error}")


def check_name(name: str) -> str:
    """The name, if it can name a folder.

    Raises:
        HookbookError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise HookbookError(f"The name {name!r} cannot name a folder: use letters, digits, dots, hyphens, underscores.")
    return name


def read(path: Path) -> Spec:
    """The sweep that a YAML file describes; its notebooks' paths are relative to the file.

    Raises:
        HookbookError: the file cannot be read or a field is wrong; names file and line.
    """
    data = read_yaml(path, str(path))
    if not isinstance(data, dict):
        raise HookbookError(f"{path}, line 1: expected fields such as `notebook:` and `grid:`.")
    root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    yaml_places.refuse_base_sixty(path, root)
    data |= {"grid": _as_typed(data["grid"], root)} if isinstance(data.get("grid"), dict) else {}
    if isinstance(data.get("timeout"), int):
        data["timeout"] = float(data["timeout"])
    try:
        spec = Spec.model_validate({"name": path.stem, **data})
        spec._origin = path, root
        check_name(spec.name)
        spec.given()
    except ValidationError as error:
        first, *others = error.errors()
        more = f" ({len(others)} more in this file)" if others else ""
        line = yaml_places.line(root, first["loc"])
        raise HookbookError(f"{path}, line {line}: {_complaint(first)}{more}.") from None
    except HookbookError as error:
        raise spec.blame(error) from None
    return spec.model_copy(update={"notebook": [_relative(path, one) for one in spec.notebooks]})


def _values(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        return grids.values(value, name)
    if not isinstance(value, list):
        return [value]
    if not value:
        raise HookbookError(f"The grid of {name} is an empty list: give it a value, or take it out.")
    return value


def _relative(path: Path, notebook: str) -> str:
    return str(path.parent / notebook) if notebook.endswith(".ipynb") else notebook


def _as_typed(grid: dict[str, Any], root: yaml.MappingNode) -> dict[str, Any]:
    """The grid with ranges as they stand in the file: YAML 1.1 reads an unquoted 1:20 as the number 80."""
    node = next(value for key, value in root.value if key.value == "grid")
    return grid | {
        key.value: value.value
        for key, value in node.value
        if isinstance(value, yaml.ScalarNode) and yaml_places.SEXAGESIMAL.fullmatch(value.value)
    }


def _complaint(error: dict[str, Any]) -> str:
    field = ".".join(str(part) for part in error["loc"] if not re.search(r"[\[\]()]|^(str|list|float|int)$", str(part)))
    if error["type"] == "missing":
        return f"{field} is missing"
    if error["type"] == "extra_forbidden":
        near = get_close_matches(field, Spec.model_fields, n=1)
        return f"there is no field {field}; " + (
            f"did you mean {near[0]}?" if near else f"{', '.join(Spec.model_fields)}"
        )
    return f"{field}: {error['msg'][0].lower()}{error['msg'][1:]}, got {error['input']!r:.60}"
