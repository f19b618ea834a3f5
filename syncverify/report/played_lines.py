"""Lines of a subject that no scenario ran, with the condition that kept them from it."""

import ast
import itertools
import linecache
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from typing_extensions import override

from syncverify.search.line_probe import PlayedLines

_NAMED = 4
_NAMED_FILES = 2
_MAX_TEST = 60
# Words of conditions that differ between the simulated machine and a cluster.
_MACHINE: Final = ("cuda", "nccl", "gpu", "device", "backend", "is_available", "gloo")


@dataclass(frozen=True, slots=True)
class IdleLines:
    """Neighbouring lines of a file that never ran, from the first to the last one."""

    path: str
    first: int
    last: int
    reason: str  # in words; "" if unknown

    @override
    def __str__(self) -> str:
        """Return the place, to be clicked on, and the reason."""
        until = f"-{self.last}" if self.last > self.first else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.path}:{self.first}{until}{why}"


@dataclass(frozen=True, slots=True)
class LineCoverage:
    """Lines of the functions of a subject."""

    files: tuple[str, ...] = ()  # those of which a function ran
    num_lines: int = 0  # that can run there
    num_played: int = 0  # of those, that ran
    # Those behind a condition on the device or the backend come first.
    idle: tuple[IdleLines, ...] = ()

    @classmethod
    def of(cls, files: Mapping[str, PlayedLines]) -> Self:
        """Sum up the lines of the files of a subject."""
        idle = [each for path in sorted(files) for each in _idle(path, files[path])]
        idle.sort(key=lambda each: not any(e in each.reason.lower() for e in _MACHINE))
        return cls(
            tuple(sorted(files)),
            sum(len(lines.all) for lines in files.values()),
            sum(len(lines.all & lines.played) for lines in files.values()),
            tuple(idle),
        )

    def brief(self) -> Iterator[str]:
        """Yield a line with numbers, if lines were counted."""
        if self.num_lines:
            count = len(self.files)
            where = ", ".join(self.files) if count <= _NAMED_FILES else f"{count} files"
            yield f"lines: {self.num_played:,} of {self.num_lines:,} in functions of {where} ran"

    def lines(self) -> Iterator[str]:
        """Yield a line with numbers, and one for each of the first ranges."""
        yield from self.brief()
        for each in self.idle[:_NAMED]:
            yield f"  never: {each}"
        if len(self.idle) > _NAMED:
            yield f"  and {len(self.idle) - _NAMED} more (the JSON report lists all)"

    def gap(self, percent: float) -> str | None:
        """Say that too few lines ran; None if enough did."""
        if not self.num_lines:
            return (
                "no line of the subject was counted: it is not Python, or runs in "
                "other processes"
            )
        if 100 * self.num_played >= percent * self.num_lines:
            return None
        named = ", ".join(map(str, self.idle[:_NAMED]))
        return (
            f"expected {percent:g} % of the lines in functions of the subject to run, but "
            f"{self.num_played} of {self.num_lines} did; never: {named}; name in the contract the "
            "features that lead there, play more examples, or test these lines otherwise"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "all": self.num_lines,
            "played": self.num_played,
            "never": [*map(asdict, self.idle)],
        }


def _idle(path: str, lines: PlayedLines) -> Iterator[IdleLines]:
    """Yield the ranges of lines that did not run, each with one reason."""
    reasons = _reasons(path, lines)
    kinds = ((n in lines.played, reasons.get(n, ""), n) for n in sorted(lines.all))
    for (has_run, reason), group in itertools.groupby(kinds, lambda kind: kind[:2]):
        numbers = [number for *_, number in group]
        if not has_run:
            yield IdleLines(path, numbers[0], numbers[-1], reason)


def _reasons(path: str, lines: PlayedLines) -> dict[int, str]:
    """Return by line why it did not run: of the parts that were not entered, the outermost."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:  # the file has changed since it was imported
        return {}
    reasons: dict[int, str] = {}
    for part, reason in (each for node in ast.walk(tree) for each in _parts(node)):
        end = part[-1].end_lineno or part[-1].lineno
        inside = sorted(n for n in lines.all if part[0].lineno <= n <= end)
        if inside and inside[0] not in lines.played:
            # `ast.walk` yields outer nodes first.
            for number in inside:
                reasons.setdefault(number, reason)
    return reasons


def _parts(node: ast.AST) -> Iterator[tuple[list[ast.stmt], str]]:
    """Yield the lists of statements of a node, each with the reason if it never ran."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.body, f"{node.name}() was never called"
        case ast.If():
            test = _shortened(ast.unparse(node.test))
            yield node.body, f"`{test}` was never true"
            if node.orelse:
                yield node.orelse, f"`{test}` was never false"
        case ast.ExceptHandler():
            kind = "an exception" if node.type is None else ast.unparse(node.type)
            yield node.body, f"nothing raised {_shortened(kind)}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEST else text[: _MAX_TEST - 3] + "..."
