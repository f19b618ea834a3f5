"""The stored form of a transcript, and what differs between two files of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from studies.golden.plain import digest
from studies.rows import RowFile
from syncverify.errors import UsageError


@dataclass(frozen=True, slots=True)
class Row:
    """A transcript: digests of its parts, in the order in which they come to be.

    Attributes:
        name: Name of the program, as `part/name`.
        program: What was played: token, ranks, layouts.
        turns: Turns of the ranks; of programs without a scenario the runs and their orders.
        trace: Records of all ranks.
        values: Gradients that were read, and parameters at `bind()`.
        leftovers: Remains after `unbind()`.
        held: What was held after each step, and whose gradients a rank owns.
        fault: The early end of the run.
        verdicts: Violations, remarks, mistakes and counts.
        found: Names of what was found, undigested.
    """

    name: str
    program: str = ""
    turns: str = ""
    trace: str = ""
    values: str = ""
    leftovers: str = ""
    held: str = ""
    fault: str = ""
    verdicts: str = ""
    found: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, transcript: Mapping[str, list[str]]) -> Self:
        """Return the row of a transcript."""
        digests = {
            part: digest("\n".join(listed))
            for part, listed in transcript.items()
            if listed and part != "found"
        }
        return cls(name, found=tuple(transcript["found"]), **digests)

    def differing(self, other: Self) -> list[str]:
        """Return the names of the parts of a transcript that differ."""
        names = [each.name for each in fields(self)]
        return [each for each in names if getattr(self, each) != getattr(other, each)]


def file_of(path: Path) -> RowFile[Row]:
    """Return a file of rows."""
    return RowFile(path, Row, ("name",))


def rows_of(path: Path) -> dict[str, Row]:
    """Return the rows of a file by name.

    Raises:
        UsageError: It is no such file, has no row, or has two of one name.
    """
    try:
        rows = file_of(path).read() if path.is_file() else []
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    by_name = {row.name: row for row in rows}
    if not rows or len(by_name) < len(rows):
        raise UsageError(f"expected a file of rows, each of another name: {path}")
    return by_name


def differences(first: Mapping[str, Row], second: Mapping[str, Row]) -> Iterator[str]:
    """Yield a line for each row that differs, or that one of the two lacks."""
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            yield f"{name}: only in the {'first' if name in first else 'second'} file"
            continue
        row, other = first[name], second[name]
        if parts := row.differing(other):
            others = f", and so does {', '.join(parts[1:])}" if parts[1:] else ""
            yield f"{name}: {parts[0]} differs{others}{_found(row, other)}"


def _found(row: Row, other: Row) -> str:
    """Return what was found in the second file in the place of the first; "" if that is equal."""
    if row.found == other.found:
        return ""
    now, before = (" and ".join(each.found) or "nothing" for each in (other, row))
    return f"; found {now} in the place of {before}"
