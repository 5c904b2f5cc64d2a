"""The parameters cell of a notebook: read with `ast` and its comments, checked before anything runs."""

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from helpers.errors import HookbookError

_NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(?<![\w.])(?:({_NUMBER})\s*\.\.\s*({_NUMBER})?|\.\.\s*({_NUMBER}))(?![\w.])")
_CHOICES = re.compile(r"[^\s|]+(?:\s*\|\s*[^\s|]+)+")
_PAPER = re.compile(r"paper\b\s*[:=]?\s*(.+)")


@dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell.

    `comment` is the whole comment; `low`, `high` and `choices` are the allowed values it states (`# 1..64`,
    `# folded | raw`) and `paper` the value at the paper's size (`# ...; paper 128`), None where it states none.
    """

    name: str
    annotation: str | None
    default: Any
    comment: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] | None = None
    paper: Any = None

    @property
    def expected(self) -> str:
        """The type a value must have, in words: the annotation, else the type of the default."""
        if self.annotation:
            return self.annotation
        return "anything" if self.default is None else type(self.default).__name__

    @property
    def allowed(self) -> str:
        """The allowed values in words ("1..64", "folded | raw"), empty where the comment states none."""
        if self.choices is not None:
            return " | ".join(map(str, self.choices))
        if self.low is None and self.high is None:
            return ""
        return "..".join("" if edge is None else f"{edge:g}" for edge in (self.low, self.high))


def parse(source: str, where: str = "the parameters cell") -> list[Parameter]:
    """Read a parameters cell: plain or annotated assignments of literals to single names, and comments.

    Raises:
        HookbookError: anything else stands in the cell, a name appears twice, or a default contradicts its own
            annotation or the values that its comment allows.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise HookbookError(f"{where} is not valid Python (line {error.lineno}: {error.msg}).") from None
    comments = _comments(source)
    parameters: dict[str, Parameter] = {}
    for statement in statements:
        parameter = _read(statement, comments, where)
        if parameter.name in parameters:
            raise HookbookError(f"{where} sets {parameter.name} twice; keep one of the two lines.")
        problem = _problem(parameter, parameter.default)
        if problem:
            raise HookbookError(f"{where}: the default of {problem}.")
        parameters[parameter.name] = parameter
    return list(parameters.values())


def validate(parameters: list[Parameter], given: dict[str, Any], where: str = "this notebook") -> dict[str, Any]:
    """Convert and check the given values; text (from a command line or YAML) is converted by the parameter's type.

    A number outside the commented range is refused unless it is the paper's own value. Returns only the names
    given, with their typed values.

    Raises:
        HookbookError: unknown names (with the nearest ones), wrong types (expected and got), values outside the range
            or the allowed values; all of them in one message.
    """
    known = {parameter.name: parameter for parameter in parameters}
    typed: dict[str, Any] = {}
    problems = []
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known) or 'none'}."
            problems.append(f"{where} has no parameter {name}; {hint.rstrip('.')}")
            continue
        parameter = known[name]
        typed[name] = _convert(parameter, value)
        problem = _problem(parameter, typed[name])
        if problem:
            problems.append(problem)
    if problems:
        message = "; ".join(problems)
        raise HookbookError(message if message.endswith("?") else f"{message}.")
    return typed


def _read(statement: ast.stmt, comments: dict[int, tuple[str, bool]], where: str) -> Parameter:
    """One statement as a parameter; `comments` maps a line to its comment and whether the line holds nothing else."""
    target = annotation = None
    if isinstance(statement, ast.AnnAssign):
        target, annotation = statement.target, ast.unparse(statement.annotation)
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    if not isinstance(target, ast.Name) or statement.value is None:
        raise HookbookError(
            f"{where}, line {statement.lineno}: only lines like `name: int = 3  # unit; 1..64; paper 128` may stand."
        )
    try:
        default = ast.literal_eval(statement.value)
    except ValueError:
        raise HookbookError(
            f"{where}: the default of {target.id} must be a plain literal, not `{ast.unparse(statement.value)}`."
        ) from None
    lines = range(statement.lineno, statement.end_lineno + 1)
    comment = " ".join(comments[line][0] for line in lines if line in comments)
    above = statement.lineno - 1
    if not comment and above in comments and comments[above][1]:
        comment = comments[above][0]
    return Parameter(target.id, annotation, default, comment, **_allowed(comment, annotation))


def _comments(source: str) -> dict[int, tuple[str, bool]]:
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            found[token.start[0]] = (token.string.lstrip("#").strip(), token.line.strip().startswith("#"))
    return found


def _allowed(comment: str, annotation: str | None) -> dict[str, Any]:
    """What a comment says about values: its parts are separated by semicolons."""
    allowed: dict[str, Any] = {}
    for part in (part.strip() for part in comment.split(";")):
        if paper := _PAPER.fullmatch(part):
            allowed["paper"] = _literal(paper[1].strip())
        elif _CHOICES.fullmatch(part):
            texts = (text.strip() for text in part.split("|"))
            # with a type of text, `4 | 8` are two texts
            as_text = annotation in ("str", "None | str", "str | None")
            allowed["choices"] = tuple(
                text if as_text and text != "None" else _literal(text, bare=True) for text in texts
            )
        elif edges := _RANGE.search(part):
            low, high = edges[1], edges[2] or edges[3]
            allowed |= {"low": float(low) if low else None, "high": float(high) if high else None}
    return allowed


def _literal(text: str, bare: bool = False) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        # `paper 128 templates` means 128
        number = None if bare else re.match(rf"{_NUMBER}(?=\s|$)", text)
        return ast.literal_eval(number[0]) if number else text


def _type(parameter: Parameter) -> ast.expr | None:
    """The annotation as a syntax tree; None admits everything."""
    if parameter.annotation is None:
        return None if parameter.default is None else ast.Name(type(parameter.default).__name__)
    tree = ast.parse(parameter.annotation, mode="eval").body
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        return ast.parse(tree.value, mode="eval").body
    return tree


def _members(kind: ast.expr) -> list[ast.expr]:
    """The alternatives of a union, else the type itself."""
    if isinstance(kind, ast.BinOp):
        return _members(kind.left) + _members(kind.right)
    if isinstance(kind, ast.Subscript) and ast.unparse(kind.value).split(".")[-1] in ("Optional", "Union"):
        inside = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        optional = [ast.Constant(None)] if "Optional" in ast.unparse(kind.value) else []
        return [member for part in inside for member in _members(part)] + optional
    return [kind]


def _literals(kind: ast.expr) -> tuple[Any, ...] | None:
    """The values of `Literal[...]`, None for any other type."""
    if isinstance(kind, ast.Subscript) and ast.unparse(kind.value).split(".")[-1] == "Literal":
        return (
            tuple(ast.literal_eval(kind.slice))
            if isinstance(kind.slice, ast.Tuple)
            else (ast.literal_eval(kind.slice),)
        )
    return None


def _fits(value: Any, kind: ast.expr) -> bool:
    members = _members(kind)
    if len(members) > 1:
        return any(_fits(value, member) for member in members)
    literals = _literals(kind)
    if literals is not None:
        return any(value == one and type(value) is type(one) for one in literals)
    if isinstance(kind, ast.Constant):
        return value is kind.value
    base = ast.unparse(kind.value if isinstance(kind, ast.Subscript) else kind)
    if base in ("int", "float"):
        return type(value) is int or (base == "float" and type(value) is float)
    if base not in ("str", "bool", "list", "tuple", "dict"):
        return True
    if type(value).__name__ != base:
        return False
    if not isinstance(kind, ast.Subscript) or base == "tuple":
        return True
    parts = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
    columns = [value] if base == "list" else [value.keys(), value.values()]
    return all(_fits(one, part) for column, part in zip(columns, parts, strict=False) for one in column)


def _convert(parameter: Parameter, value: Any) -> Any:
    """The value as the parameter's type; left alone when it cannot be one, so that the message can show it."""
    kind = _type(parameter)
    if isinstance(value, str):
        word = {"none": None, "true": True, "false": False}.get(value.strip().lower(), value)
        if kind is None or not _fits(value, kind):
            value = _literal(value.strip(), bare=True) if word is value else word
        elif word is None and _fits(None, kind):
            value = None
    if hasattr(value, "item"):  # a numpy scalar, from a sweep written in Python
        value = value.item()
    names = [] if kind is None else [ast.unparse(member) for member in _members(kind)]
    return float(value) if type(value) is int and "float" in names and "int" not in names else value


def _problem(parameter: Parameter, value: Any) -> str | None:
    """What is wrong with a typed value, None when nothing is."""
    kind = _type(parameter)
    if kind is not None and not _fits(value, kind):
        literals = [one for member in _members(kind) for one in _literals(member) or ()]
        expected = " | ".join(map(repr, literals)) if literals else parameter.expected
        return f"{parameter.name}: expected {expected}, got {value!r} ({type(value).__name__})"
    if value == parameter.paper and value is not None:
        return None
    values = value if isinstance(value, (list, tuple)) else [value]
    if parameter.choices is not None and not all(one in parameter.choices for one in values):
        return f"{parameter.name}: {value!r} is not one of {parameter.allowed}"
    numbers = [one for one in values if type(one) in (int, float)]
    below = parameter.low is not None and any(not one >= parameter.low for one in numbers)
    above = parameter.high is not None and any(not one <= parameter.high for one in numbers)
    return f"{parameter.name}: {value!r} is outside {parameter.allowed}" if below or above else None
