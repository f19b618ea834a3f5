"""The methods of a subject's class, found by the names that its code has for them."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType

from syncverify.repair.source_edit import source_of
from syncverify.trace.source_lines import is_subject_line


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a class or of one of its bases.

    Attributes:
        path: Its file.
        node: Its definition there.
        distance: Number of classes before its class in the order of inheritance.
    """

    path: str
    node: ast.FunctionDef
    distance: int

    @property
    def is_inherited_blank(self) -> bool:
        """Tell whether a base defines the method, without code; an override may be a mistake."""
        blank = all(isinstance(n, ast.Pass) or not _is_code(n) for n in self.node.body)
        return self.distance > 0 and blank

    def deciding(self, asked: re.Pattern[str] | None) -> ast.stmt:
        """Return the statement that decides over the effect of the method.

        Args:
            asked: Pattern of the statements to prefer; None for no such.

        Returns:
            The last `return` with a value; without one the first statement that is code.
        """
        code = [*filter(_is_code, self.node.body)] or [self.node]
        preferred = (node for node in code if asked and asked.search(ast.unparse(node)))
        return next(preferred, _last_return(self.node) or code[0])


def _is_code(node: ast.stmt) -> bool:
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _last_return(function: ast.FunctionDef) -> ast.Return | None:
    returns = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None
    ]
    return max(returns, key=lambda node: node.lineno, default=None)


class Methods:
    """The methods of a class that are the subject's own code.

    Args:
        factory: The class; another object has no methods.
    """

    def __init__(self, factory: object) -> None:
        self._classes = inspect.getmro(factory) if inspect.isclass(factory) else ()

    @functools.cached_property
    def _all(self) -> list[dict[str, Method]]:
        """The methods of each class, by name, the nearest class first."""
        return [
            {name: found for name in vars(owner) if (found := _method(owner, name, n))}
            for n, owner in enumerate(self._classes)
        ]

    def named(self, name: str, after: int = -1) -> Method | None:
        """Return the method that a name stands for, in the classes after a distance."""
        found = (methods[name] for methods in self._all[after + 1 :] if name in methods)
        return next(found, None)

    def distance_of(self, path: str, number: int) -> int:
        """Return the distance of the method that starts on a line; -1 for other functions."""
        for methods in self._all:
            for method in methods.values():
                if (method.path, method.node.lineno) == (path, number):
                    return method.distance
        return -1

    def named_in(self, node: ast.AST, distance: int) -> Iterator[Method]:
        """Yield the methods that some code of a class names, or that set its attributes."""
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Attribute):
                continue
            after = distance if _is_super(inner.value) else -1
            found = self.named(inner.attr, after)
            if found is not None:
                yield found
            elif _is_self(inner.value):
                yield from self._setting(inner.attr)

    def _setting(self, attribute: str) -> Iterator[Method]:
        """Yield the methods that set an attribute, or that replace one that sets it."""
        setting = {
            name: None
            for methods in self._all
            for name, method in methods.items()
            if name not in {"__init__", "bind", "unbind"}
            and _sets(method.node, attribute)
        }
        yield from filter(None, map(self.named, setting))


def _method(owner: type, name: str, distance: int) -> Method | None:
    value = vars(owner)[name]
    value = value.fget if isinstance(value, property) else value
    value = inspect.unwrap(value) if callable(value) else value
    if not isinstance(value, FunctionType):
        return None
    path = value.__code__.co_filename
    source = source_of(path) if is_subject_line(path) else None
    for node in ast.walk(source.tree) if source else ():
        if isinstance(node, ast.FunctionDef) and node.name == value.__name__:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == value.__code__.co_firstlineno:
                return Method(path, node, distance)
    return None


def _sets(function: ast.FunctionDef, attribute: str) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.ctx, ast.Store)
        and _is_self(node.value)
        for node in ast.walk(function)
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "super"
