"""The subject as text of a script: the lines that import it, or its source.

A definition of the harness brings along what it uses: definitions of the harness as text, and all
others as imports. Annotations are left out, for they name types that the script has no use for.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.subjects.subject import BUILT_IN_SUBJECTS, Subject
from syncverify.subjects.subject_options import split_options
from syncverify.subjects.subject_path import module_path_of

_OWN_PACKAGE = "syncverify"
# Attributes of a class that only the harness reads.
_CONTRACT = frozenset({"capabilities", "narrowed", "not_observed", "takes_options"})
# Adapters of the harness, which a script without the harness cannot import.
_ADAPTERS = "syncverify.subjects"


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """Definitions as text by name, each after those that it uses, and the imports that they need."""

    imports: set[str] = field(default_factory=set)
    definitions: dict[str, str] = field(default_factory=dict)

    def add(self, definition: Any) -> None:
        """Add a definition with all that it uses; raise UsageError if it has no text of its own."""
        # A cache keeps the text of its function.
        definition = inspect.unwrap(definition)
        name: str = getattr(definition, "__name__", type(definition).__name__)
        if name in self.definitions:
            return
        closure = getattr(definition, "__closure__", None)
        if closure or not isinstance(definition, FunctionType | type):
            raise UsageError(
                f"no script can play {name!r}, which has no text of its own: replay the token "
                "instead"
            )
        self.definitions[name] = ""  # a definition may use itself
        parsed = ast.parse(textwrap.dedent(inspect.getsource(definition)))
        tree = _WithoutTypes().visit(parsed.body[0])
        for used in _names(tree):
            self._use(used, sys.modules[definition.__module__])
        del self.definitions[name]  # now it comes after those that it uses
        self.definitions[name] = ast.unparse(tree)

    def _use(self, name: str, home: ModuleType) -> None:
        if name not in vars(home):  # a local name, or a builtin
            return
        line = _imports(home).get(name, "")
        value = vars(home)[name]
        if line and f" {_OWN_PACKAGE}." not in line:
            self.imports.add(line)
        elif isinstance(value, ModuleType):
            self.imports.add(f"import {value.__name__} as {name}")
        elif isinstance(value, int | float | str):
            self.definitions[name] = f"{name} = {value!r}"
        elif isinstance(value, dict) and name not in self.definitions:
            self._add_assigned(name, home)
        else:
            self.add(value)

    def _add_assigned(self, name: str, home: ModuleType) -> None:
        """Add a constant as the module assigns it, with all that it uses."""
        statements = ast.parse(inspect.getsource(home)).body
        assigned = next(each for each in statements if name in _assigned(each))
        tree = _WithoutTypes().visit(assigned)
        for used in _names(tree.value):
            self._use(used, home)
        self.definitions[name] = ast.unparse(tree)

    def with_all(self, definitions: Iterable[Any]) -> EmbeddedSource:
        """Return this source with more definitions."""
        source = EmbeddedSource({*self.imports}, {**self.definitions})
        for each in definitions:
            source.add(each)
        return source


@functools.cache
def _imports(module: ModuleType) -> dict[str, str]:
    """Return the line of each import of a module, by the name that it binds there."""
    lines = dict[str, str]()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                line = f"{source}import {ast.unparse(alias)}"
                lines[alias.asname or alias.name] = line
    return lines


class _WithoutTypes(ast.NodeTransformer):
    """Leaves out annotations, `@override` and the contract of a class."""

    @override
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        others = (e for e in node.decorator_list if ast.unparse(e) != "override")
        node.decorator_list = [*others]
        return self.generic_visit(node)

    @override
    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    @override
    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        body = [each for each in node.body if _CONTRACT.isdisjoint(_assigned(each))]
        for number, each in enumerate(body):
            match each:
                case ast.AnnAssign(annotation=kind) if "ClassVar" not in ast.dump(kind):
                    each.annotation = ast.Name("object")  # a dataclass needs some
                case _:
                    body[number] = self.visit(each)
        node.body = body or [ast.Pass()]
        return node

    @override
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _assigned(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _names(tree: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(tree) if isinstance(each, ast.Name))


@dataclass(frozen=True, slots=True)
class SubjectText:
    """The subject in a script."""

    expression: str  # names the class or factory
    search_path: tuple[str, ...] = ()  # lines that let Python find the module
    imports: tuple[str, ...] = ()
    # Its definition, where it is an adapter of the harness.
    source: EmbeddedSource = field(default_factory=EmbeddedSource)


def subject_text(subject: Subject, folder: Path) -> SubjectText:
    """Return the text of a subject for a script; raise UsageError if no line can import it."""
    path = module_path_of(subject.factory)
    if path is None:
        path = BUILT_IN_SUBJECTS.get(subject.name, subject.name)
    module, _, attribute = path.partition(":")
    if module.endswith(".py") or not attribute:
        raise UsageError(
            f"subject {subject.name!r} has no name that a script could import: expected a "
            "class or function of a module"
        )
    if module.rpartition(".")[0] == _ADAPTERS:
        return SubjectText(attribute, source=_with_options(subject, attribute))
    first = attribute.partition(".")[0]
    imports = (f"from {module} import {first}",)
    return SubjectText(attribute, tuple(_search_path(module, folder)), imports)


def _with_options(subject: Subject, attribute: str) -> EmbeddedSource:
    """Return the source of an adapter, and a line that sets the options behind its name."""
    source = EmbeddedSource().with_all([subject.factory])
    if split_options(subject.name)[1]:
        options = getattr(subject.factory, "options", {})
        source.definitions["options"] = f"{attribute}.options = {options!r}"
    return source


def _search_path(module: str, folder: Path) -> list[str]:
    """Return lines that let Python find a module that is not installed."""
    # Not resolved: a folder of the package may be a link.
    file = Path(getattr(sys.modules[module], "__file__", None) or "").absolute()
    depth = module.count(".") + (file.name == "__init__.py")
    root = file.parents[depth].resolve()
    is_installed = {"site-packages", "dist-packages"} & {*file.parts}
    if is_installed or root == folder.resolve():
        return []
    relative = os.path.relpath(root, folder.resolve())
    return [f"sys.path.insert(0, str(Path(__file__).resolve().parent / {relative!r}))"]
