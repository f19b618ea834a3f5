"""Violations that are saved for the next run, at the moment at which they are met.

The entries are tokens, not Hypothesis' choices: a token means the same scenario to each
version that reads it, and a choice changes its meaning with the strategies. The store is a
Hypothesis database, so folders, artifacts of other machines and combinations of both work.

A violation is saved when it is met, and once more when it is shrunk. Until then its token is
under a key of its own, so that the next run knows that there is shrinking left to do. A run
that is interrupted, killed or out of memory thus loses no violation that it has met.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis.database import ExampleDatabase, InMemoryExampleDatabase

from syncverify.errors import ScenarioFormatError, UnknownLayerError
from syncverify.plain_text import counted
from syncverify.progress import Progress
from syncverify.scenario.features import features_outside
from syncverify.scenario.replay_token import Reproducer, decode, encode, other_version
from syncverify.scenario.size import size_of
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.violation_folder import ViolationFolder
from syncverify.search.violation_server import ViolationServer, is_server
from syncverify.subjects.subject import Subject

# A folder, the address of a server, or a Hypothesis database; None saves nothing.
Database = ExampleDatabase | Path | str | None


def open_database(database: Database, notes: list[str]) -> ExampleDatabase:
    """Open the database that a user named; the first save creates its folder.

    Args:
        database: A folder, the address of a server of Redis, or a Hypothesis database; None
            saves nothing.
        notes: List that receives a line about each file that is not read.

    Returns:
        The database.

    Raises:
        UsageError: The path is no folder, and none can be made there; or no server is there.
    """
    if database is None:
        return InMemoryExampleDatabase()
    if isinstance(database, ExampleDatabase):
        return database
    if isinstance(database, str) and is_server(database):
        return ViolationServer(database)
    return ViolationFolder(database, notes)


@dataclass(frozen=True, slots=True)
class SavedViolations:
    """Violations of one subject on one backend that earlier runs found.

    Attributes:
        database: Store of tokens.
        notes: Receives a line about each entry that is not played.
        only: Tokens to play; None for all.
    """

    database: ExampleDatabase
    subject: Subject
    backend: str
    notes: list[str] = field(default_factory=list)
    only: frozenset[str] | None = None

    def tokens(self) -> frozenset[str]:
        """Return the tokens of all entries, of this version and others."""
        keys = self._key, self._unshrunk_key
        entries = (entry for key in keys for entry in self.database.fetch(key))
        return frozenset(entry.decode(errors="replace") for entry in entries)

    def reproducers(self, max_ranks: int) -> Iterator[Reproducer]:
        """Yield the reproducers of at most `max_ranks` ranks, by the order of tokens."""
        return self._read(self._key, max_ranks)

    def unshrunk(self, max_ranks: int) -> Iterator[Reproducer]:
        """Yield the reproducers that an interrupted run met and did not shrink, in that order."""
        return self._read(self._unshrunk_key, max_ranks)

    def save(self, token: str) -> None:
        """Save a shrunk violation for the next run."""
        self.database.save(self._key, token.encode())

    def save_unshrunk(self, token: str) -> None:
        """Save a violation that is not shrunk yet."""
        self.database.save(self._unshrunk_key, token.encode())

    def drop(self, token: str) -> None:
        """Delete a shrunk violation that does not occur any more, or not in this form."""
        self.database.delete(self._key, token.encode())

    def drop_unshrunk(self, token: str) -> None:
        """Delete a violation that was not shrunk yet."""
        self.database.delete(self._unshrunk_key, token.encode())

    def _read(self, key: bytes, max_ranks: int) -> Iterator[Reproducer]:
        foreign = 0
        for entry in sorted(self.database.fetch(key)):
            token = entry.decode(errors="replace")
            if self.only is not None and token not in self.only:
                continue
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


@dataclass(slots=True)
class KeepingProgress:
    """Progress that saves violations and then tells a listener of them.

    Attributes:
        saved: Store of the violations.
        listener: Listener of progress; None for none.
    """

    saved: SavedViolations
    listener: Progress[FoundViolation] | None = None
    # The token in the store by identity: that of the first scenario until it is shrunk.
    _unshrunk: dict[Identity, str] = field(default_factory=dict)
    _shrunk: dict[Identity, FoundViolation] = field(default_factory=dict)

    def played(self, num_examples: int, num_violations: int) -> None:
        """Tell the listener."""
        if self.listener is not None:
            self.listener.played(num_examples, num_violations)

    def found(self, violation: FoundViolation) -> None:
        """Save a violation and tell the listener, unless its identity was met before."""
        identity = violation.violation.identity
        if identity in self._unshrunk or identity in self._shrunk:
            return
        self._unshrunk[identity] = violation.token
        self.saved.save_unshrunk(violation.token)
        if self.listener is not None:
            self.listener.found(violation)

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Tell the listener."""
        if self.listener is not None:
            self.listener.shrinking(identity, num_runs)

    def shrunk(self, violation: FoundViolation) -> None:
        """Save a shrunk violation in place of a larger one, and tell the listener."""
        identity = violation.violation.identity
        known = self._shrunk.get(identity, violation)
        size = size_of(violation.scenario)
        if known is not violation and size >= size_of(known.scenario):
            return
        self._shrunk[identity] = violation
        self.saved.save(violation.token)
        if known.token != violation.token:
            self.saved.drop(known.token)
        self._drop_unshrunk(identity)
        if self.listener is not None:
            self.listener.shrunk(violation)

    def keep_only(self, kept: Collection[Identity]) -> None:
        """Drop what was met and is not reported, because another violation explains it."""
        for identity in self._unshrunk.keys() - kept:
            self._drop_unshrunk(identity)
        for identity in self._shrunk.keys() - kept:
            self.saved.drop(self._shrunk.pop(identity).token)

    def _drop_unshrunk(self, identity: Identity) -> None:
        if identity in self._unshrunk:
            self.saved.drop_unshrunk(self._unshrunk.pop(identity))
