"""Violations that are saved at the moment at which they are met, and played first by the next run.

The entries are tokens, not Hypothesis' choices: a token means the same scenario to each
version that reads it, and a choice changes its meaning with the strategies.

A violation is saved when it is met, and once more when it is shrunk. Until then its token is
under a key of its own, so that the next run knows that there is shrinking left to do. A run
that is interrupted, killed or out of memory thus loses no violation that it has met.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hypothesis.database import ExampleDatabase

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    ScenarioFormatError,
    UnknownLayerError,
)
from syncverify.plain_text import counted
from syncverify.progress import Progress, SilentProgress
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.features import features_outside, size_of
from syncverify.scenario.replay_token import Reproducer, decode, encode, other_version
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.space import Space
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge, JudgedRun
from syncverify.search.occurrences import Occurrences
from syncverify.search.result import SearchResult
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class SavedViolations:
    """Violations of one subject on one backend that earlier runs found."""

    database: ExampleDatabase
    subject: Subject
    backend: str
    # Receives a line about each entry that is not played.
    notes: list[str] = field(default_factory=list)
    only: frozenset[str] | None = None  # tokens to play; None for all

    def tokens(self) -> frozenset[str]:
        """Return the tokens of all entries, of this version and others."""
        keys = self._key(is_shrunk=True), self._key(is_shrunk=False)
        entries = (entry for key in keys for entry in self.database.fetch(key))
        return frozenset(entry.decode(errors="replace") for entry in entries)

    def save(self, token: str, *, is_shrunk: bool = True) -> None:
        """Save a violation for the next run."""
        self.database.save(self._key(is_shrunk=is_shrunk), token.encode())

    def drop(self, token: str, *, is_shrunk: bool = True) -> None:
        """Delete a violation that does not occur any more, or not in this form."""
        self.database.delete(self._key(is_shrunk=is_shrunk), token.encode())

    def reproducers(
        self, max_ranks: int, *, is_shrunk: bool = True
    ) -> Iterator[Reproducer]:
        """Yield the reproducers of at most `max_ranks` ranks, by the order of tokens.

        An interrupted run met those that are not shrunk.
        """
        foreign, key = 0, self._key(is_shrunk=is_shrunk)
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
            scenario = reproducer.scenario
            outside = features_outside(scenario, self.subject.capabilities)
            if scenario.mesh.num_ranks <= max_ranks and not outside:
                yield reproducer
        if foreign:
            self.notes.append(
                f"kept {counted(foreign, 'saved violation')} of another version of syncverify, which "
                "this one cannot play"
            )

    def _key(self, *, is_shrunk: bool) -> bytes:
        key = f"syncverify {self.subject.key} {self.backend}".encode()
        return key if is_shrunk else key + b", not shrunk"


@dataclass(slots=True)
class KeepingProgress:
    """Progress that saves violations and then tells a listener of them."""

    saved: SavedViolations
    listener: Progress[FoundViolation] = field(default_factory=SilentProgress)
    # The token in the store by identity: that of the first scenario until it is shrunk.
    _unshrunk: dict[Identity, str] = field(default_factory=dict)
    _shrunk: dict[Identity, FoundViolation] = field(default_factory=dict)

    def played(self, num_examples: int, num_violations: int) -> None:
        """Tell the listener."""
        self.listener.played(num_examples, num_violations)

    def found(self, violation: FoundViolation) -> None:
        """Save a violation and tell the listener, unless its identity was met before."""
        identity = violation.violation.identity
        if identity in self._unshrunk or identity in self._shrunk:
            return
        self._unshrunk[identity] = violation.token
        self.saved.save(violation.token, is_shrunk=False)
        self.listener.found(violation)

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Tell the listener."""
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
        self.listener.shrunk(violation)

    def keep_only(self, kept: Collection[Identity]) -> None:
        """Drop what was met and is not reported, because another violation explains it."""
        for identity in self._unshrunk.keys() - kept:
            self._drop_unshrunk(identity)
        for identity in self._shrunk.keys() - kept:
            self.saved.drop(self._shrunk.pop(identity).token)

    def _drop_unshrunk(self, identity: Identity) -> None:
        if identity in self._unshrunk:
            self.saved.drop(self._unshrunk.pop(identity), is_shrunk=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay of saved violations."""

    # The violations that still occur, in the saved scenarios, as a search without examples.
    result: SearchResult
    num_played: int
    unshrunk: frozenset[Identity]  # of violations that no run has shrunk

    @property
    def shrunk(self) -> frozenset[Identity]:
        """Return the identities of violations that an earlier run has shrunk."""
        met = (entry.violation.identity for entry in self.result.violations)
        return frozenset(met) - self.unshrunk


def replay_saved(
    saved: SavedViolations,
    backend: Backend,
    progress: Progress[FoundViolation],
    *,
    max_ranks: int,
) -> Replay:
    """Return a play of the violations of earlier runs; those that are gone are dropped.

    `progress` receives the violations that still occur at once.
    """
    started = time.monotonic()
    judge = Judge(saved.subject, backend, ScheduleChoice(), random_seed=0)
    met = Occurrences()
    num_played, shrunk = 0, frozenset[Identity]()
    for is_shrunk in (True, False):
        tell = progress.shrunk if is_shrunk else progress.found
        for reproducer in saved.reproducers(max_ranks, is_shrunk=is_shrunk):
            if judge.budget.stopped:
                break
            judged = _judged_again(saved, judge, reproducer, is_shrunk=is_shrunk)
            if judged is None:
                continue
            num_played += 1
            for found in met.add(judged.violations):
                tell(found)
            if not judged.violations:
                saved.drop(encode(reproducer), is_shrunk=is_shrunk)
        if is_shrunk:
            shrunk = frozenset(met.own)
    result = SearchResult(
        0,
        time.monotonic() - started,
        Coverage(Space(saved.subject.capabilities, max_ranks)),
        [met.own[identity] for identity in met.reported()],
        met=met,
        stopped=judge.budget.stopped,
    )
    return Replay(result, num_played, frozenset(met.own) - shrunk)


def _judged_again(
    saved: SavedViolations, judge: Judge, reproducer: Reproducer, *, is_shrunk: bool
) -> JudgedRun | None:
    """Return the run of one entry, None if it cannot be played; drop it if the harness fails."""
    try:
        return judge.judge_reproducer(reproducer)
    except OutOfBudgetError:
        return None
    except EnvironmentNotSupportedError as error:
        saved.notes.append(f"skipped a saved violation: {error}")
        return None
    except ScenarioFormatError as error:
        saved.drop(encode(reproducer), is_shrunk=is_shrunk)
        saved.notes.append(f"dropped a saved violation: {error}")
        return None
    except InternalError:
        saved.drop(encode(reproducer), is_shrunk=is_shrunk)
        raise


def shrink_replayed(
    replay: Replay,
    results: Sequence[SearchResult],
    subject: Subject,
    backend: Backend,
    progress: Progress[FoundViolation],
) -> SearchResult:
    """Return the result of a replay, its violations shrunk.

    A search, whose `results` are given, has shrunk those that it met once more, and another
    violation explains some. The others are shrunk here by leaving things out: their sequence
    of random scenarios is not known any more.
    """
    judge = Judge(subject, backend, ScheduleChoice(), random_seed=0)
    max_ranks = replay.result.coverage.space.max_ranks
    unrelated = Drawing(subject.capabilities, max_ranks, num_examples=1, random_seed=0)
    met = Occurrences()
    for result in (replay.result, *results):
        met.update(result.met)
    shrunk = {each.violation.identity for one in results for each in one.violations}
    left = (replay.unshrunk & met.reported().keys()) - shrunk
    violations = [*replay.result.violations]
    for place, entry in enumerate(violations):
        if entry.violation.identity in left:
            violations[place] = shrink(unrelated, judge, entry, progress)
            progress.shrunk(violations[place])
    return replace(replay.result, violations=violations)
