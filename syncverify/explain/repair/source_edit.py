"""Changes of a subject's source, in force while scenarios are played with them.

Note [A change without an import]
    A module that is imported again is another one: its classes are no base classes of the
    subject's, and what it registered is registered twice. So the changed file is compiled, and
    the functions that live in this process get the code of their namesakes.
"""

import ast
import functools
import gc
import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from syncverify.holding import holding
from syncverify.search.line_probe import functions_of
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import SourceLine, shown_path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of consecutive lines of one file."""

    path: str
    first: int  # number of the first line that goes, from 1
    num_lines: int  # that go; 0 inserts before `first`
    lines: tuple[str, ...]  # that take their place, without indentation
    indent: int


@dataclass(frozen=True)
class Source:
    """The text of a file, and its statements."""

    path: str
    lines: tuple[str, ...]
    tree: ast.Module

    @cached_property
    def statements(self) -> tuple[ast.stmt, ...]:
        """All statements; outer ones come before those in them."""
        return tuple(each for each in ast.walk(self.tree) if isinstance(each, ast.stmt))

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions and methods; outer ones come before those in them."""
        return tuple(each for each in self.statements if isinstance(each, Function))

    @cached_property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        """All classes."""
        return tuple(e for e in self.statements if isinstance(e, ast.ClassDef))

    @cached_property
    def places(self) -> dict[ast.stmt, tuple[ast.stmt, list[ast.stmt]]]:
        """The statement around each inner statement, and the block of it that has the inner one."""
        return {
            inner: (outer, block)
            for outer in self.statements
            for block in blocks_of(outer)
            for inner in block
        }

    def statement_at(self, number: int) -> ast.stmt | None:
        """Return the innermost statement of a function that has a line."""
        return next((e for e in reversed(self.statements) if _has(e, number)), None)

    def function_at(self, number: int) -> Function | None:
        """Return the innermost function that has a line."""
        return next((e for e in reversed(self.functions) if _has(e, number)), None)

    def line(self, number: int) -> SourceLine:
        """Return a line with the name of its function."""
        function = self.function_at(number)
        name = function.name if function else ""
        return SourceLine(shown_path(self.path), number, name)

    def owner_of(self, function: Function) -> ast.ClassDef | None:
        """Return the class that has a function as a method."""
        return next((each for each in self.classes if function in each.body), None)

    def loops_around(self, statement: ast.stmt) -> list[ast.For | ast.While]:
        """Return the loops in which a statement stands, innermost first, up to another block."""
        found, inner = list[ast.For | ast.While](), statement
        for node in self.around(statement):
            if not (isinstance(node, ast.For | ast.While) and inner in node.body):
                break
            found.append(node)
            inner = node
        return found

    def around(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Yield the statements around one within its function, the innermost first."""
        outer, _ = self.places.get(statement, (None, []))
        if outer is not None and not isinstance(outer, Function):
            yield outer
            yield from self.around(outer)

    def text(self, node: ast.stmt) -> tuple[str, ...]:
        """Return the lines of a statement, without their common indentation."""
        return tuple(
            line[node.col_offset :] if line[: node.col_offset].isspace() else line
            for line in self.lines[node.lineno - 1 : _end(node)]
        )

    def before(self, node: ast.stmt, *lines: str) -> Edit:
        """Insert lines before a statement."""
        return Edit(self.path, node.lineno, 0, lines, node.col_offset)

    def after(self, node: ast.stmt, *lines: str) -> Edit:
        """Insert lines after a statement, and after its block if it has one."""
        return Edit(self.path, _end(node) + 1, 0, lines, node.col_offset)

    def instead(self, node: ast.stmt, *lines: str) -> Edit:
        """Put lines in the place of a statement."""
        num_lines = _end(node) - node.lineno + 1
        return Edit(self.path, node.lineno, num_lines, lines, node.col_offset)

    def at_start(self, function: Function, *lines: str) -> Edit:
        """Insert lines in front of the code of a function, after its docstring."""
        code = code_in(function)
        if not code:
            return self.after(function.body[0], *lines)
        make = self.instead if isinstance(code[0], ast.Pass) else self.before
        return make(code[0], *lines)

    def at_end(self, block: list[ast.stmt], *lines: str) -> Edit:
        """Add lines to a block, as the last ones that run."""
        match block[-1]:
            case ast.Pass() as last:
                return self.instead(last, *lines)
            case ast.Return() | ast.Raise() as last:
                return self.before(last, *lines)
            case last:
                return self.after(last, *lines)

    def part(self, node: ast.expr, text: str) -> Iterator[Edit]:
        """Yield the edit that puts text in the place of an expression on one line."""
        if node.lineno == node.end_lineno:
            line = self.lines[node.lineno - 1].encode()
            new = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
            code = new.lstrip()
            indent = len(new) - len(code)
            yield Edit(self.path, node.lineno, 1, (code.decode(),), indent)

    def edited(self, edit: Edit) -> str:
        """Return the text of the file with a change."""
        start, lines = edit.first - 1, [*self.lines, ""]
        new = [" " * edit.indent + line for line in edit.lines]
        lines[start : start + edit.num_lines] = new
        return "\n".join(lines)


def _has(node: ast.stmt, number: int) -> bool:
    return node.lineno <= number <= _end(node)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


@functools.lru_cache(maxsize=64)
def source_of(path: str) -> Source | None:
    """Return the source of a file; None if it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return Source(path, tuple(text.splitlines()), ast.parse(text))
    except (OSError, SyntaxError, ValueError):
        return None


def line_of(function: object) -> SourceLine | None:
    """Return the line of a `def`, after its decorators; None where it is not the subject's."""
    if not callable(function):
        return None
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType) or not is_subject_line(code.co_filename):
        return None
    source = source_of(code.co_filename)
    if source is None:
        return None
    name, first = code.co_name, code.co_firstlineno
    numbers = (each.lineno for each in source.functions if each.name == name)
    number = min((each for each in numbers if each >= first), default=first)
    return SourceLine(shown_path(source.path), number, name)


def blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """List the blocks of a statement, those of its handlers and cases too."""
    own = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    parts = [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    return [block for block in (*own, *(part.body for part in parts)) if block]


def code_in(node: ast.stmt) -> list[ast.stmt]:
    """Return the body of a statement without its docstring."""
    body: list[ast.stmt] = getattr(node, "body", [])
    return [
        each
        for each in body
        if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]


def methods_of(owner: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class, by name."""
    return {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef)}


class NotEditableError(Exception):
    """A change is no valid program, or its file is not the one that was imported."""


class LiveFile:
    """A file of the subject, and its functions that live in this process."""

    def __init__(self, path: str) -> None:
        source = source_of(path)
        if source is None:
            raise NotEditableError
        self.source = source
        self._known = _codes(path, "\n".join([*source.lines, ""]))
        self._functions = _functions(path)

    @contextmanager
    def in_force(self, edit: Edit) -> Iterator[None]:
        """Give the functions their new code, or raise NotEditableError."""
        changed = self._new_codes(edit)
        with ExitStack() as stack:
            for function, code in changed:
                stack.enter_context(holding(function, "__code__", code))
            yield

    def _new_codes(self, edit: Edit) -> list[tuple[FunctionType, CodeType]]:
        try:
            new = _codes(edit.path, self.source.edited(edit))
        except (SyntaxError, ValueError) as error:
            raise NotEditableError from error
        changed = list[tuple[FunctionType, CodeType]]()
        for function in self._functions:
            old = function.__code__
            known, code = self._known.get(old.co_qualname), new.get(old.co_qualname)
            if known is None or code is None:
                continue
            is_changed = _spans(known, edit.first) or self._ends_before(
                known, edit.first
            )
            if not is_changed:
                continue
            if known.co_code != old.co_code or code.co_freevars != old.co_freevars:
                raise NotEditableError
            changed.append((function, code))
        if not changed:
            raise NotEditableError
        return changed

    def _ends_before(self, code: CodeType, number: int) -> bool:
        """Tell whether a function ends on the line before, maybe with its docstring."""
        function = self.source.function_at(number - 1)
        if function is None:
            return False
        decorators = (node.lineno for node in function.decorator_list)
        return code.co_firstlineno in {function.lineno, *decorators}


def _codes(path: str, text: str) -> dict[str, CodeType]:
    """Return the code of all functions of a file by qualified name."""
    found: dict[str, CodeType] = {}
    waiting = [compile(text, path, "exec", dont_inherit=True)]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, CodeType):
                found[constant.co_qualname] = constant
                waiting.append(constant)
    return found


def _functions(path: str) -> list[FunctionType]:
    """List the functions of a file that live in this process."""
    # The collector knows closures as well, but no object that was there before `gc.freeze`.
    modules = [each for each in sys.modules.values() if isinstance(each, ModuleType)]
    own = [each for each in modules if vars(each).get("__file__") == path]
    seen = set[int]()
    named = (each for module in own for each in functions_of(module, seen))
    live = [
        each
        for each in (*named, *gc.get_objects())
        if type(each) is FunctionType and each.__code__.co_filename == path
    ]
    return [*dict.fromkeys(live)]


def _spans(code: CodeType, number: int) -> bool:
    """Tell whether a function has a line, or ends on the line before."""
    numbers = [line for _, _, line in code.co_lines() if line is not None]
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and _spans(constant, number):
            return True
    return bool(numbers) and min(numbers) <= number <= max(numbers) + 1
