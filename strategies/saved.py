"""Violations that are kept between runs, to be played first by the next one.

What is kept are tokens, not Hypothesis' choices: a token says the same scenario to every
version that reads it, while choices mean something else as soon as a strategy changes.
The store is one of Hypothesis' own databases, so directories, other machines' artifacts
and combinations of both come for free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    InMemoryExampleDatabase,
)

from syncverify.errors import ScenarioFormatError
from syncverify.features import beyond
from syncverify.replay import Recording, decode, encode
from syncverify.subject import Subject

# A folder, or any of Hypothesis' databases; None keeps nothing.
Database = ExampleDatabase | Path | str | None


def open_database(database: Database) -> ExampleDatabase:
    """Return a database for what a user named; it makes no folder before it saves."""
    if database is None:
        return InMemoryExampleDatabase()
    if isinstance(database, ExampleDatabase):
        return database
    return DirectoryBasedExampleDatabase(database)


@dataclass(frozen=True, slots=True)
class SavedViolations:
    """What earlier runs on a subject and a backend found.

    Attributes:
        database: Where it is kept.
        subject: Whose violations.
        backend: Name of the backend.
    """

    database: ExampleDatabase
    subject: Subject
    backend: str

    def recordings(self, max_ranks: int) -> Iterator[Recording]:
        """Yield what can be played, in the order of tokens.

        Args:
            max_ranks: Largest world; what needs more ranks is kept for another run.
        """
        for token in sorted(self.database.fetch(self._key)):
            try:
                recording = decode(token.decode(errors="replace"))
            except ScenarioFormatError:
                self.database.delete(self._key, token)  # of another version
                continue
            if self._may_play(recording, max_ranks):
                yield recording

    def keep(self, recording: Recording) -> None:
        """Keep a violation for the next run."""
        self.database.save(self._key, encode(recording).encode())

    def drop(self, recording: Recording) -> None:
        """Forget a violation that is no more."""
        self.database.delete(self._key, encode(recording).encode())

    @property
    def _key(self) -> bytes:
        return f"syncverify {self.subject.name} {self.backend}".encode()

    def _may_play(self, recording: Recording, max_ranks: int) -> bool:
        scenario, able = recording.scenario, self.subject.capabilities
        return (
            scenario.mesh.num_ranks <= max_ranks
            and able.lacking(scenario) is None
            and all(able.covers(topic, value) for topic, value in beyond(scenario))
        )
