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
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis.database import ExampleDatabase, InMemoryExampleDatabase

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    ScenarioFormatError,
    UnknownLayerError,
)
from syncverify.plain_text import counted
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.features import features_outside
from syncverify.scenario.space import Space
from syncverify.scenario.token import Reproducer, decode, encode, other_version
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge
from syncverify.search.occurrences import Occurrences
from syncverify.search.replayed import judge_again
from syncverify.search.result import Progress, SearchResult
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.shrinking import shrink
from syncverify.search.violation_folder import ViolationFolder
from syncverify.subjects.subject import Subject

# A folder, or a Hypothesis database; None saves nothing.
Database = ExampleDatabase | Path | str | None


def open_database(database: Database, notes: list[str]) -> ExampleDatabase:
    """Open the database that a user named; the first save creates its folder.

    Args:
        database: A folder, or a Hypothesis database; None saves nothing.
        notes: List that receives a line about each file that is not read.

    Returns:
        The database.

    Raises:
        UsageError: The path is no folder, and none can be made there.
    """
    if database is None:
        return InMemoryExampleDatabase()
    if isinstance(database, ExampleDatabase):
        return database
    return ViolationFolder(database, notes)


@dataclass(frozen=True, slots=True)
class SavedViolations:
    """Violations of one subject on one backend that earlier runs found.

    Attributes:
        database: Store of tokens.
        subject: The subject.
        backend: Name of the backend.
        notes: Receives a line about each entry that is not played.
    """

    database: ExampleDatabase
    subject: Subject
    backend: str
    notes: list[str] = field(default_factory=list)

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
        foreign = 0
        for entry in sorted(self.database.fetch(key)):
            token = entry.decode(errors="replace")
            if other_version(token):
                foreign += 1
                continue
            try:
                reproducer = decode(token)
            except UnknownLayerError:  # another contract may provide the layer
                continue
            except ScenarioFormatError as error:
                self.database.delete(key, entry)
                self.notes.append(f"dropped a saved violation: {error}")
                continue
            spelled = encode(reproducer).encode()
            if spelled != entry:  # `drop` would not find another spelling of the token
                self.database.delete(key, entry)
                self.database.save(key, spelled)
            if self._may_play(reproducer, max_ranks):
                yield reproducer
        if foreign:
            self.notes.append(
                f"kept {counted(foreign, 'saved violation')} of another version of syncverify, which "
                "this one cannot play"
            )

    @property
    def _key(self) -> bytes:
        return f"syncverify {self.subject.key} {self.backend}".encode()

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
        if judge.budget.stopped:
            break
        entry = _Entry(reproducer, saved.drop, saved.notes)
        num_played += _play(entry, judge, met, progress.shrunk)
    shrunk = frozenset(met.own)
    for reproducer in saved.unshrunk(max_ranks):
        if judge.budget.stopped:
            break
        entry = _Entry(reproducer, saved.drop_unshrunk, saved.notes)
        num_played += _play(entry, judge, met, progress.found)
    coverage = Coverage(Space(saved.subject.capabilities, max_ranks))
    result = SearchResult(
        0,
        time.monotonic() - started,
        coverage,
        [met.own[identity] for identity in met.counting()],
        met=met,
        stopped=judge.budget.stopped,
    )
    return Replay(result, num_played, frozenset(met.own) - shrunk)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One saved violation.

    Attributes:
        reproducer: The violation.
        drop: Deletes it from the database.
        notes: Receives a line if it cannot be played.
    """

    reproducer: Reproducer
    drop: Callable[[Reproducer], None]
    notes: list[str]


def _play(
    entry: _Entry,
    judge: Judge,
    met: Occurrences,
    tell: Callable[[FoundViolation], None],
) -> int:
    """Play one entry and note its violations.

    Returns:
        1, or 0 if the entry may not or cannot be played.

    Raises:
        InternalError: The harness failed; the next run does not meet the entry again.
    """
    reproducer = entry.reproducer
    try:
        judged = judge_again(judge, reproducer)
    except OutOfBudgetError:
        return 0
    except EnvironmentNotSupportedError as error:
        entry.notes.append(f"skipped a saved violation: {error}")
        return 0
    except ScenarioFormatError as error:
        entry.drop(reproducer)
        entry.notes.append(f"dropped a saved violation: {error}")
        return 0
    except InternalError:
        entry.drop(reproducer)
        raise
    for found in met.add(judged.violations):
        tell(found)
    if not judged.violations:
        entry.drop(reproducer)
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
