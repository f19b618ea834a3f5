"""One search by several processes: each plays its share of the scenarios.

Processes share no state. Each one has its own seed, which follows from the seed of the
search. So the merged result depends on that seed and on the number of processes alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from syncverify.backends.choice import open_backend
from syncverify.backends.packed_subject import pack_subject, unpack_subject
from syncverify.processes.calls import is_to_stop, run_in_processes
from syncverify.processes.owner_link import tell_owner
from syncverify.program.warnings_once import show_warnings_once
from syncverify.search.drawing import EndedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.result import Progress, SearchResult, merged
from syncverify.search.search import search
from syncverify.settings import Settings
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The share of one process.

    Attributes:
        index: Number of the process.
        subject: Result of `pack_subject`.
        backend: Name of the backend.
        settings: Settings of the share.
        known: Violations that are not shrunk.
    """

    index: int
    subject: bytes
    backend: str
    settings: Settings
    known: frozenset[Identity]


@dataclass(frozen=True, slots=True)
class ScenarioPlayed:
    """Progress of a process: one more scenario, and its number of violations so far."""

    num_violations: int


@dataclass(frozen=True, slots=True)
class ViolationMet:
    """Progress of a process: a violation that it had not met before."""

    violation: FoundViolation


@dataclass(frozen=True, slots=True)
class ViolationShrunk:
    """Progress of a process: a violation in the smallest scenario that it could find."""

    violation: FoundViolation


@dataclass(frozen=True, slots=True)
class ShrinkingRun:
    """Progress of a process: one more run to shrink a violation."""

    identity: Identity
    num_runs: int


def search_in_parallel(
    subject: Subject,
    backend: str,
    settings: Settings,
    progress: Progress,
    known: frozenset[Identity] = frozenset(),
) -> SearchResult:
    """Return the merged result of a search with several processes.

    Each process opens the backend of the given name. The settings are those of the whole search.
    `progress` receives the progress of all processes together.

    Raises:
        SyncverifyError: A process raised it; it is raised again here.
    """
    packed, counts = pack_subject(subject), JointProgress(progress)
    shares = enumerate(_shares(settings))
    results = run_in_processes(
        _search_share,
        [SearchJob(index, packed, backend, share, known) for index, share in shares],
        jobs=settings.jobs,
        hear=counts.hear,
        stops=lambda: settings.stop_at_first and counts.has_met,
    )
    with closing(results):
        by_index = {job.index: result for job, result in results}
    return merged([by_index[index] for index in sorted(by_index)])


def _shares(settings: Settings) -> Iterator[Settings]:
    """Yield the settings of each process; seeds are hashed, so that shares do not overlap."""
    jobs = settings.jobs
    for index in range(min(jobs, settings.examples)):
        digest = hashlib.sha256(f"{settings.random_seed}: {index} of {jobs}".encode())
        yield replace(
            settings,
            examples=len(range(index, settings.examples, jobs)),
            seed=int.from_bytes(digest.digest()[:4]),
            database=None,  # this process keeps what is found
            progress=None,
        )


class JointProgress:
    """The progress of all processes together, in this one, after some scenarios before."""

    def __init__(self, progress: Progress, num_played: int = 0) -> None:
        self._progress = progress
        self._num_played, self._num_violations = num_played, 0
        self.has_met = False

    def hear(self, word: object) -> None:
        """Hand on the progress of a process."""
        match word:
            case ViolationMet():
                self.has_met = True
                self._progress.found(word.violation)
            case ShrinkingRun():
                self._progress.shrinking(word.identity, word.num_runs)
            case ViolationShrunk():
                self._progress.shrunk(word.violation)
            case ScenarioPlayed():
                self._num_played += 1
                # A lower bound: two processes may have met the same violation.
                self._num_violations = max(self._num_violations, word.num_violations)
                self._progress.played(self._num_played, self._num_violations)


class ToldProgress:
    """The progress of one process, which tells it to the one that counts for all."""

    def played(self, num_examples: int, num_violations: int) -> None:
        """Tell that one more scenario was played; end this process's share if it is to end."""
        tell_owner(lambda: ScenarioPlayed(num_violations))
        if is_to_stop():  # another process has met a violation, and one is enough
            raise EndedError

    def found(self, violation: FoundViolation) -> None:
        """Tell a violation that was met."""
        tell_owner(lambda: ViolationMet(violation))

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Tell one more run."""
        tell_owner(lambda: ShrinkingRun(identity, num_runs))

    def shrunk(self, violation: FoundViolation) -> None:
        """Tell a violation that was made small."""
        tell_owner(lambda: ViolationShrunk(violation))


def _search_share(job: SearchJob) -> SearchResult:
    torch.set_num_threads(1)
    show_warnings_once()
    subject = unpack_subject(job.subject)
    with closing(open_backend(job.backend, subject)) as backend:
        return search(subject, backend, job.settings, ToldProgress(), job.known)
