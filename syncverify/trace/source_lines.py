"""Lines of Python code as values, and their text."""

import functools
import inspect
import linecache
import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override


class NoLine(Enum):
    """The origin of work that no line of the subject started."""

    AUTOGRAD = "autograd"
    OPTIMIZER = "optimizer"
    RETURN = "the return of the program"
    UNKNOWN = "unknown line"

    @override
    def __str__(self) -> str:
        return self.value


class SourceLine(NamedTuple):
    """A line of Python code; printed as `bucket.py:81 in launch`."""

    path: str  # below the working directory, or absolute
    number: int  # from 1
    function: str  # the one that has the line; "" outside of functions

    @override
    def __str__(self) -> str:
        within = f" in {self.function}" if self.function else ""
        return f"{self.path}:{self.number}{within}"

    @property
    def file(self) -> str:
        """Return the absolute path of the file."""
        return str(Path(self.path).absolute())


class CodeLine(NamedTuple):
    """A line with its code; printed as `bucket.py:81 in launch: work = all_reduce(...)`."""

    line: SourceLine
    code: str

    @override
    def __str__(self) -> str:
        return f"{self.line}: {self.code}"


Origin = SourceLine | NoLine


def code_of_line(line: SourceLine) -> str:
    """Return the code of a line; "" where there is no such file."""
    return linecache.getline(line.file, line.number).strip()


def with_code(origins: Iterable[Origin]) -> tuple[CodeLine, ...]:
    """Return lines with their code; without those whose file is gone."""
    lines = lines_among(origins)
    return tuple(CodeLine(each, code) for each in lines if (code := code_of_line(each)))


def lines_among(origins: Iterable[Origin]) -> tuple[SourceLine, ...]:
    """Return the origins that are lines of the subject."""
    return tuple(each for each in origins if isinstance(each, SourceLine))


def first_line(function: Any) -> SourceLine | None:
    """Return the first line of a function of the user; None for one of ours, or without lines."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    is_ours = str(getattr(function, "__module__", "")).startswith("syncverify.")
    if code is None or is_ours:
        return None
    first = code.co_firstlineno  # of its decorators
    while linecache.getline(code.co_filename, first).lstrip().startswith("@"):
        first += 1
    return SourceLine(shown_path(code.co_filename), first, code.co_name)


def shown_path(filename: str) -> str:
    """Return a path that an editor opens: below the current folder, or absolute."""
    return _shown(filename, working_directory())


def working_directory() -> str:
    """Return the working directory; "" if it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109  # for every operator
    except FileNotFoundError:
        return ""


@functools.cache
def _shown(filename: str, folder: str) -> str:
    path = Path(filename)
    is_below = folder and path.is_relative_to(folder)
    return str(path.relative_to(folder) if is_below else path)
