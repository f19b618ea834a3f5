"""Violations that are saved between runs, and their replay before a search.

The entries are tokens, not Hypothesis' choices: a token means the same scenario to each
version that reads it, and a choice changes its meaning with the strategies. The store is a
Hypothesis database, so folders, artifacts of other machines and combinations of both work.

A violation is saved when it is met, and once more when it is shrunk. Until then its token is
under a key of its own, so that the next run knows that there is shrinking left to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    InMemoryExampleDatabase,
)

from syncverify.errors import ScenarioFormatError
from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.scenario.coverage import Coverage, features_outside
from syncverify.scenario.space import Space
from syncverify.scenario.token import Reproducer, decode, encode
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge
from syncverify.search.occurrences import Occurrences
from syncverify.search.result import Progress, SearchResult
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import Subject

# A folder, or a Hypothesis database; None saves nothing.
Database = ExampleDatabase | Path | str | None


def open_database(database: Database) -> ExampleDatabase:
    """Return the database that a user named; its folder is created by the first save."""
    if database is None:
        return InMemoryExampleDatabase()
    if isinstance(database, ExampleDatabase):
        return database
    return DirectoryBasedExampleDatabase(database)


@dataclass(frozen=True, slots=True)
class SavedViolations:
    """Violations of one subject on one backend, by its name, that earlier runs found."""

    database: ExampleDatabase
    subject: Subject
    backend: str

    def reproducers(self, max_ranks: int) -> Iterator[Reproducer]:
        """Yield the reproducers of at most `max_ranks` ranks, by the order of tokens."""
        return self._read(self._key, max_ranks)

    def unshrunk(self, max_ranks: int) -> Iterator[Reproducer]:
        """Yield likewise the reproducers that an interrupted run met and did not shrink."""
        return self._read(self._unshrunk_key, max_ranks)

    def save(self, reproducer: Reproducer) -> None:
        """Save a shrunk violation for the next run."""
        self.database.save(self._key, encode(reproducer).encode())

    def save_unshrunk(self, reproducer: Reproducer) -> None:
        """Save a violation that is not shrunk yet."""
        self.database.save(self._unshrunk_key, encode(reproducer).encode())

    def drop(self, reproducer: Reproducer) -> None:
        """Delete a shrunk violation that does not occur any more, or not in this form."""
        self.database.delete(self._key, encode(reproducer).encode())

    def drop_unshrunk(self, reproducer: Reproducer) -> None:
        """Delete a violation that was not shrunk yet."""
        self.database.delete(self._unshrunk_key, encode(reproducer).encode())

    def _read(self, key: bytes, max_ranks: int) -> Iterator[Reproducer]:
        for token in sorted(self.database.fetch(key)):
            try:
                reproducer = decode(token.decode(errors="replace"))
            except ScenarioFormatError:
                self.database.delete(key, token)  # written by another version
                continue
            if self._may_play(reproducer, max_ranks):
                yield reproducer

    @property
    def _key(self) -> bytes:
        return f"syncverify {self.subject.name} {self.backend}".encode()

    @property
    def _unshrunk_key(self) -> bytes:
        return self._key + b", not shrunk"

    def _may_play(self, reproducer: Reproducer, max_ranks: int) -> bool:
        """Tell whether a reproducer fits the world and the subject's present contract."""
        scenario = reproducer.scenario
        outside = features_outside(scenario, self.subject.capabilities)
        return scenario.mesh.num_ranks <= max_ranks and not outside


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay of saved violations.

    Attributes:
        result: The violations that still occur, in the saved scenarios, as the result of a
            search without examples.
        num_played: Number of scenarios played.
        unshrunk: Identities of violations that no run has shrunk.
    """

    result: SearchResult
    num_played: int
    unshrunk: frozenset[Identity]

    @property
    def shrunk(self) -> frozenset[Identity]:
        """Return the identities of the other violations."""
        met = (entry.violation.identity for entry in self.result.violations)
        return frozenset(met) - self.unshrunk


def replay_saved(
    saved: SavedViolations, backend: Backend, progress: Progress, *, max_ranks: int
) -> Replay:
    """Play saved violations of earlier runs, and drop those that are gone.

    Returns:
        The violations that still occur; `progress` receives them at once.
    """
    started = time.monotonic()
    judge = Judge(saved.subject, backend, ScheduleChoice(), random_seed=0)
    met = Occurrences()
    num_played = 0
    for reproducer in saved.reproducers(max_ranks):
        num_played += _play(reproducer, judge, met, saved.drop, progress.shrunk)
    shrunk = frozenset(met.own)
    for reproducer in saved.unshrunk(max_ranks):
        num_played += _play(reproducer, judge, met, saved.drop_unshrunk, progress.found)
    coverage = Coverage(Space(saved.subject.capabilities, max_ranks))
    result = SearchResult(
        0,
        time.monotonic() - started,
        coverage,
        [met.own[identity] for identity in met.counting()],
        met=met,
    )
    return Replay(result, num_played, frozenset(met.own) - shrunk)


def _play(
    reproducer: Reproducer,
    judge: Judge,
    met: Occurrences,
    drop: Callable[[Reproducer], None],
    tell: Callable[[FoundViolation], None],
) -> int:
    """Play one reproducer, note its violations; return 1, or 0 if it may not be played."""
    twice = reproducer.property == subject_is_deterministic.__name__
    try:
        judged = judge.judge_schedule(
            reproducer.scenario, reproducer.schedule, twice=twice
        )
    except OutOfBudgetError:
        return 0
    for entry in met.add(judged.violations):
        tell(entry)
    if not judged.violations:
        drop(reproducer)
    return 1


def shrink_replayed(
    replay: Replay,
    subject: Subject,
    backend: Backend,
    shrunk: Collection[Identity],
    progress: Progress,
) -> SearchResult:
    """Return the result of a replay, its violations shrunk.

    Those in `shrunk` were shrunk by a search that met them once more, or another violation
    explains them. The others are shrunk here by leaving things out: their sequence of random
    scenarios is not known any more.
    """
    judge = Judge(subject, backend, ScheduleChoice(), random_seed=0)
    max_ranks = replay.result.coverage.space.max_ranks
    unrelated = Drawing(subject.capabilities, max_ranks, num_examples=1, random_seed=0)
    violations = list[FoundViolation]()
    for entry in replay.result.violations:
        identity = entry.violation.identity
        if identity in replay.unshrunk and identity not in shrunk:
            entry = shrink(unrelated, judge, identity, entry, progress)
            progress.shrunk(entry)
        violations.append(entry)
    return replace(replay.result, violations=violations)
