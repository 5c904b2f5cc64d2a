"""Code cells as syntax trees: which names they read, what they import."""

import ast
import builtins
import re
import symtable
from collections.abc import Iterable

_MAGIC = re.compile(r"^\s*[%!?]|^.*\?\s*$")


def tree(source: str) -> ast.Module | None:
    """The cell as a syntax tree, None where it is not plain Python (magics, shell commands)."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def imports(sources: Iterable[str]) -> set[str]:
    """The modules that cells import, as written: `import a.b` and `from a.b import c` give `a.b` (and `a.b.c`).

    Relative imports keep their leading dots.
    """
    found = set()
    for source in sources:
        for node in ast.walk(tree(_without_magics(source)) or ast.Module([], [])):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                glue = "" if base.endswith(".") else "."
                found |= {base, *(f"{base}{glue}{alias.name}" for alias in node.names)}
    return found


def unread(names: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Those of the names that the cells never load before storing something else in them."""
    reader = _Reader(names)
    for source in sources:
        reader.visit(tree(_without_magics(source)) or ast.Module([], []))
        if tree(source) is None:  # `%timeit f(seed)` reads seed, and no tree tells
            whole = source.lstrip().startswith("%%")
            for line in source.splitlines():
                if whole or _MAGIC.match(line):
                    reader.read |= reader.live & set(re.findall(r"[A-Za-z_]\w*", line))
    return [name for name in reader.names if name not in reader.read]


def taken_from_outside(source: str) -> list[str]:
    """The names that a cell's functions read and that neither the cell nor Python defines: state of the notebook."""
    if tree(source) is None:
        return []
    whole = symtable.symtable(source, "cell", "exec")
    own = {symbol.get_name() for symbol in whole.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    read: set[str] = set()
    waiting = whole.get_children()
    while waiting:
        table = waiting.pop()
        read |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
        waiting += table.get_children()
    return sorted(read - own - set(dir(builtins)))


def _without_magics(source: str) -> str:
    """Magic lines become `pass`, so that indentation holds and the rest can be read."""
    if tree(source) is not None:
        return source
    if source.lstrip().startswith("%%"):
        return ""
    return "\n".join(re.sub(r"\S.*", "pass", line) if _MAGIC.match(line) else line for line in source.splitlines())


class _Reader(ast.NodeVisitor):
    """Walks code in the order in which it runs and notes which of the names are loaded while they still live.

    A name dies when straight-line code stores into it; what stands in a branch, a loop or a function may never run,
    so a store there does not kill.
    """

    def __init__(self, names: Iterable[str]):
        self.names = list(names)
        self.live = set(self.names)
        self.read: set[str] = set()
        self.shadowed: list[set[str]] = []
        self.certain = True

    def visit_Name(self, node: ast.Name) -> None:
        if any(node.id in names for names in self.shadowed):
            return
        if isinstance(node.ctx, ast.Load):
            self.read |= {node.id} & self.live
        elif self.certain:
            self.live.discard(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._in_order(node.value, *node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # `seed: int` alone stores nothing
        self._in_order(node.annotation, *([node.value, node.target] if node.value else []))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit_Name(ast.Name(node.target.id, ast.Load()))
        self._in_order(node.value, node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._in_order(node.value, node.target)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._in_order(node.iter, node.target)  # a loop over nothing is rarer than a loop that hides a parameter
        self._maybe(*node.body, *node.orelse)

    visit_AsyncFor = visit_For

    def visit_If(self, node: ast.If | ast.While) -> None:
        self.visit(node.test)
        self._maybe(*node.body, *node.orelse)

    visit_While = visit_If

    def visit_Try(self, node: ast.Try) -> None:
        self._maybe(*node.body, *node.handlers, *node.orelse, *node.finalbody)

    visit_TryStar = visit_Try

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._maybe(*node.cases)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._in_order(*node.decorator_list)
        self._function(node.args, node.body)
        self._store(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._in_order(*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords))
        self._maybe(*node.body)
        self._store(node.name)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        self.visit(node.generators[0].iter)
        targets = {
            name.id
            for generator in node.generators
            for name in ast.walk(generator.target)
            if isinstance(name, ast.Name)
        }
        self.shadowed.append(targets)
        for number, generator in enumerate(node.generators):
            self._in_order(*([generator.iter] if number else []), *generator.ifs)
        self._in_order(*([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]))
        self.shadowed.pop()

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._store((alias.asname or alias.name).split(".")[0])

    visit_ImportFrom = visit_Import

    def _function(self, arguments: ast.arguments, body: list[ast.AST]) -> None:
        self._in_order(*arguments.defaults, *(default for default in arguments.kw_defaults if default))
        inside = [node for statement in body for node in ast.walk(statement)]
        outer = {name for node in inside if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
        stored = {node.id for node in inside if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        given = {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}
        self.shadowed.append(given | (stored - outer))
        self._maybe(*body)
        self.shadowed.pop()

    def _store(self, name: str) -> None:
        self.visit_Name(ast.Name(name, ast.Store()))

    def _in_order(self, *nodes: ast.AST) -> None:
        for node in nodes:
            self.visit(node)

    def _maybe(self, *nodes: ast.AST) -> None:
        before, self.certain = self.certain, False
        self._in_order(*nodes)
        self.certain = before
