"""Violations that are saved between runs, and their replay before a search.

The entries are tokens, not Hypothesis' choices: a token means the same scenario to each
version that reads it, and a choice changes its meaning with the strategies. The store is a
Hypothesis database, so folders, artifacts of other machines and combinations of both work.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
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
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge
from syncverify.search.result import SearchResult
from syncverify.search.schedules import ScheduleChoice
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
        for token in sorted(self.database.fetch(self._key)):
            try:
                reproducer = decode(token.decode(errors="replace"))
            except ScenarioFormatError:
                self.database.delete(self._key, token)  # written by another version
                continue
            if self._may_play(reproducer, max_ranks):
                yield reproducer

    def save(self, reproducer: Reproducer) -> None:
        """Save a violation for the next run."""
        self.database.save(self._key, encode(reproducer).encode())

    def drop(self, reproducer: Reproducer) -> None:
        """Delete a violation that does not occur any more."""
        self.database.delete(self._key, encode(reproducer).encode())

    @property
    def _key(self) -> bytes:
        return f"syncverify {self.subject.name} {self.backend}".encode()

    def _may_play(self, reproducer: Reproducer, max_ranks: int) -> bool:
        """Tell whether a reproducer fits the world and the subject's present contract."""
        scenario = reproducer.scenario
        outside = features_outside(scenario, self.subject.capabilities)
        return scenario.mesh.num_ranks <= max_ranks and not outside


def replay_saved(
    saved: SavedViolations, backend: Backend, *, max_ranks: int
) -> tuple[SearchResult, int]:
    """Play saved violations of earlier runs, and drop those that are gone.

    Returns:
        The violations that still occur, in the saved scenarios, as the result of a search
        without examples; and the number of scenarios played.
    """
    started = time.monotonic()
    judge = Judge(saved.subject, backend, ScheduleChoice(), random_seed=0)
    met: dict[Identity, FoundViolation] = {}
    num_played = 0
    for reproducer in saved.reproducers(max_ranks):
        twice = reproducer.property == subject_is_deterministic.__name__
        with contextlib.suppress(OutOfBudgetError):
            judged = judge.judge_schedule(
                reproducer.scenario, reproducer.schedule, twice=twice
            )
            num_played += 1
            for identity, violation in judged.violations.items():
                met.setdefault(identity, violation)
            if not judged.violations:
                saved.drop(reproducer)
    coverage = Coverage(Space(saved.subject.capabilities, max_ranks))
    seconds = time.monotonic() - started
    return SearchResult(0, seconds, coverage, list(met.values())), num_played
