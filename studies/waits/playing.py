"""Play the waits of built-in subjects, and check those that are called superfluous.

A wait is called superfluous within a bound. The check draws scenarios beyond that bound, plays
each once, takes the superfluous points out of its traces, and plays it again without a call that
the traces do not need. It wants none to break, and plays nothing where no point is superfluous.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from syncverify.backends.announced_counts import with_announced_counts
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.small_scope import SmallScope
from syncverify.search.drawing import Drawing
from syncverify.search.exhaustive import scenarios_within
from syncverify.search.schedules import ScheduleChoice
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.sync_points import SyncPoint
from syncverify.waits.answers import Answer, AnsweredWaits, HarmWithout, PlayedSubject
from syncverify.waits.exposed_time import Link
from syncverify.waits.finding import WaitSearch
from syncverify.waits.joined import joined

RANKS: Final = 4
_SCOPE: Final = "parameters=2,steps=1,words=launch"
PART_SIZE: Final = 200  # scenarios of one part of a check
_CHECK_SEED: Final = 1  # scenarios different from those that choose the words


@dataclass(frozen=True, slots=True)
class Row:
    """Subjects of the same code, and the scenarios of their words.

    Attributes:
        subjects: Names of the subjects.
        scope: Scope of which all scenarios are played.
        names_torch: Whether torch's own lines are named.
    """

    subjects: tuple[str, ...]
    scope: str = _SCOPE
    names_torch: bool = True

    @property
    def name(self) -> str:
        """Name of the row in the stored results."""
        return self.subjects[0]

    def command(self, examples: int) -> str:
        """Return the command that prints the words."""
        lines = " --torch-lines" if self.names_torch else ""
        names = " ".join(self.subjects)
        return f"syncverify waits {names}{lines} --scope {self.scope} --examples {examples}"


ROWS: Final = {
    row.name: row
    for row in (
        Row(
            (
                "synchronizer",
                "synchronizer:comm_hook=all_reduce",
                "synchronizer:comm_hook=all_reduce,unused=keep_none",
            ),
            names_torch=False,
        ),
        Row(("ddp", "ddp-comm-hook", "ddp-find-unused", "ddp-static-graph")),
        Row(("ddp-bucket-view",)),
        Row(("replicate",)),
        Row(("replicate-fsdp",)),
        Row(("fsdp2",)),
        # Two axes of several ranks each: FSDP2 has no all-reduce with fewer.
        Row(
            ("hsdp",), scope="ranks=4,parameters=2,micro_batches=1,steps=1,words=launch"
        ),
    )
}


def words_of(row: Row, examples: int, jobs: int) -> AnsweredWaits:
    """Find the words of the waits of a row."""
    scope, link = SmallScope.parse(row.scope), Link()
    played, answers = list[PlayedSubject](), list[Answer]()
    for name in row.subjects:
        subject = _subject(name)
        search = _search(subject, row, jobs)
        listed = scenarios_within(scope, subject.capabilities)
        drawn = [each for each in _drawn(subject, examples, 0) if each not in {*listed}]
        answers += search.answers([*listed, *drawn])
        played.append(search.played(len(listed), len(drawn)))
    return AnsweredWaits(
        subjects=tuple(played),
        scope=scope,
        max_ranks=RANKS,
        seed=0,
        link=link,
        answers=joined(answers),
    )


@dataclass(slots=True)
class Checked:
    """A part of the check of superfluous points.

    Attributes:
        num_scenarios: Number of scenarios whose traces hold with all points.
        num_plays: Number of plays without a call.
        broken: The points without which a scenario breaks.
    """

    num_scenarios: int = 0
    num_plays: int = 0
    broken: dict[SyncPoint, HarmWithout] = field(default_factory=dict)


def check(row: Row, points: Collection[SyncPoint], number: int, jobs: int) -> Checked:
    """Take each of some points out of drawn scenarios of each subject of a row.

    Args:
        row: The row.
        points: The points.
        number: Place of the part of the check, from 0: about `PART_SIZE` scenarios each.
        jobs: Number of processes.

    Returns:
        The points without which a scenario breaks, and how much was played.
    """
    found = Checked()
    for name in row.subjects:
        subject = _subject(name)
        search = _search(subject, row, jobs)
        search.choice = ScheduleChoice("default")
        share = -(-PART_SIZE // len(row.subjects))
        found.broken |= search.broken(
            points, _drawn(subject, share, _CHECK_SEED + number)
        )
        found.num_scenarios += search.traces.num_held
        found.num_plays += search.num_plays
    return found


def _subject(name: str) -> Subject:
    return with_announced_counts(resolve(name), "sim", [])


def _search(subject: Subject, row: Row, jobs: int) -> WaitSearch:
    return WaitSearch(
        subject, Link(), _tell_nothing, jobs=jobs, names_torch=row.names_torch
    )


def _tell_nothing(_stage: str, _number: int, _total: int) -> None:
    """Take progress."""


def _drawn(subject: Subject, count: int, seed: int) -> list[Scenario]:
    drawn = Drawing(subject.capabilities, RANKS, count, seed).drawn()
    return [*dict.fromkeys(drawn)]
