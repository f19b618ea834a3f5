"""The stored answers of the rows, and those of their points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from studies.rows import RESULTS, RowFile, today
from syncverify.judge.ordering.kept_references import KIND as REFERENCE
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.sync_points import PointKind, SyncPoint
from syncverify.waits.answers import Answer, AnsweredWaits


@dataclass(frozen=True, slots=True)
class Answered:
    """Scenarios of a row, and those of the check of its superfluous points.

    Attributes:
        row: Name of the row.
        date: Day of the answers.
        torch: Version of torch.
        examples: Drawn scenarios that each subject was asked for.
        in_scope: Scenarios of the scope.
        drawn: Drawn scenarios beyond them.
        wrong: Scenarios that break with all waits, and say nothing of any.
        check_parts: Parts of the check that were played.
        check_scenarios: Their scenarios.
        check_plays: Plays without a call.
        check_broken: Tokens of scenarios that break without a superfluous point.
    """

    row: str
    date: str
    torch: str
    examples: int
    in_scope: int
    drawn: int
    wrong: int
    check_parts: int = 0
    check_scenarios: int = 0
    check_plays: int = 0
    check_broken: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: str, torch: str, examples: int, waits: AnsweredWaits) -> Self:
        """Return the row of answers, not yet checked."""
        played = waits.subjects
        return cls(
            row=row,
            date=today(),
            torch=torch,
            examples=examples,
            in_scope=sum(each.num_in_scope for each in played),
            drawn=sum(each.num_drawn for each in played),
            wrong=sum(len(each.wrong) for each in played),
        )


@dataclass(frozen=True, slots=True)
class Point:
    """The word of a point.

    Attributes:
        row: Name of the row.
        kind: Kind of the point.
        path: Path of its line.
        line: Number of its line.
        function: Function of its line.
        word: `needed`, `superfluous` or `undecided`.
        scenarios: Number of scenarios in which it ran.
        microseconds: Most time by which a step ends sooner without it.
        token: Scenario that breaks without it; empty if none does.
    """

    row: str
    kind: PointKind
    path: str
    line: int
    function: str
    word: str
    scenarios: int
    microseconds: float = 0.0
    token: str = ""

    @classmethod
    def of(cls, row: str, answer: Answer) -> Self:
        """Return the row of an answer."""
        line = answer.point.line
        return cls(
            *(row, answer.point.kind, line.path, line.number, line.function),
            *(answer.word, answer.num_scenarios, round(answer.exposed_microseconds, 3)),
            "" if answer.harm is None else answer.harm.token,
        )

    @property
    def is_reference(self) -> bool:
        """Tell whether it is a kept reference, and no call."""
        return self.kind == REFERENCE

    @property
    def sync_point(self) -> SyncPoint:
        """The point of the traces."""
        return SyncPoint(self.kind, SourceLine(self.path, self.line, self.function))


ANSWERED: Final = RowFile(RESULTS / "waits.jsonl", Answered, ("row",))
POINTS: Final = RowFile(
    RESULTS / "wait_points.jsonl", Point, ("row", "path", "line", "function", "kind")
)


def store(answered: Answered, waits: AnsweredWaits) -> None:
    """Store the answers of a row in the place of earlier ones."""
    others = [each for each in POINTS.read() if each.row != answered.row]
    points = [Point.of(answered.row, each) for each in waits.answers]
    POINTS.write([*others, *points])
    ANSWERED.put(answered)


def superfluous(points: Iterable[Point]) -> list[SyncPoint]:
    """List the superfluous points."""
    return [each.sync_point for each in points if each.word == "superfluous"]
