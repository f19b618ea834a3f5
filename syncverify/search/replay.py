"""The replay of saved violations before a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    ScenarioFormatError,
)
from syncverify.progress import Progress
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.space import Space
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge
from syncverify.search.occurrences import Occurrences
from syncverify.search.replayed import judge_again
from syncverify.search.result import SearchResult
from syncverify.search.saved_violations import SavedViolations
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay of saved violations.

    Attributes:
        result: The violations that still occur, in the saved scenarios, as the result of a
            search without examples.
        unshrunk: Identities of violations that no run has shrunk.
    """

    result: SearchResult
    num_played: int
    unshrunk: frozenset[Identity]

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
        [met.own[identity] for identity in met.reported()],
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
    drop: Callable[[str], None]
    notes: list[str]


def _play(
    entry: _Entry,
    judge: Judge,
    met: Occurrences,
    tell: Callable[[FoundViolation], None],
) -> bool:
    """Play one entry and note its violations.

    Returns:
        Whether it was played: some entries may not or cannot be played.

    Raises:
        InternalError: The harness failed; the next run does not meet the entry again.
    """
    reproducer, token = entry.reproducer, encode(entry.reproducer)
    try:
        judged = judge_again(judge, reproducer)
    except OutOfBudgetError:
        return False
    except EnvironmentNotSupportedError as error:
        entry.notes.append(f"skipped a saved violation: {error}")
        return False
    except ScenarioFormatError as error:
        entry.drop(token)
        entry.notes.append(f"dropped a saved violation: {error}")
        return False
    except InternalError:
        entry.drop(token)
        raise
    for found in met.add(judged.violations):
        tell(found)
    if not judged.violations:
        entry.drop(token)
    return True


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
    violations = list[FoundViolation]()
    for entry in replay.result.violations:
        identity = entry.violation.identity
        if identity in left:
            entry = shrink(unrelated, judge, identity, entry, progress)
            progress.shrunk(entry)
        violations.append(entry)
    return replace(replay.result, violations=violations)
