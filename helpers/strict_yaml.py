"""YAML files read safely and strictly: a key given twice is an error, and 1e-4 is a number."""

import re
from pathlib import Path
from typing import Any

import yaml

from helpers.errors import HookbookError


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """The safe loader, which by itself keeps the last of two equal keys without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


# YAML 1.1 wants a dot and a sign in the exponent, which nobody writes
_PLAIN_EXPONENT = re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _PLAIN_EXPONENT, list("-+0123456789"))


def read_yaml(path: Path, name: str) -> Any:
    """The plain data in a YAML file, which errors call `name`.

    Raises:
        HookbookError: the file cannot be read, is not UTF-8 or not YAML, or gives a key twice; names file and line.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise HookbookError(f"{name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise HookbookError(f"{name} is not UTF-8 (byte {error.start}): save it as UTF-8.") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        raise HookbookError(f"{name}{f', line {mark.line + 1}' if mark else ''}: {problem}.") from None
