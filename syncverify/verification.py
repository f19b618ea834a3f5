"""Verify a subject: search for violations and report them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from strategies.parallel import search_in_parallel
from strategies.replays import replay_saved
from strategies.saved import Database, SavedViolations, open_database
from strategies.schedule_choice import ScheduleChoice
from strategies.schedule_coverage import counts, summary
from strategies.search import search
from strategies.search_result import Progress, SearchPlan, merged
from syncverify.backends.choice import AnyBackend, open_backend
from syncverify.backends.sim import SimBackend
from syncverify.backends.torchrun import TorchrunBackend
from syncverify.errors import UsageError
from syncverify.fresh_state import fresh_state
from syncverify.ordering.held_memory import HeldMemory
from syncverify.report.coverage import CoverageSummary
from syncverify.report.numbers import bytes_text
from syncverify.report.report import Report, ReportedViolation
from syncverify.report.text import diagnosis
from syncverify.subject import Subject, SubjectFactory, resolve
from syncverify.witness import find_witness

DEFAULT_RANKS = 4
DEFAULT_EXAMPLES = 200
DEFAULT_SCHEDULES = "drawn"
_MAX_SEED = 2**32


class PropertyViolation(AssertionError):  # noqa: N818  # part of the API  # named for what it is; part of the API
    """A subject violates a property; the text is the full diagnosis.

    Attributes:
        report: The report.
    """

    def __init__(self, report: Report) -> None:
        super().__init__("\n" + diagnosis(report))
        self.report = report


class CoverageGap(AssertionError):  # noqa: N818  # part of the API
    """The scenarios that were played contain less than was asked for.

    Attributes:
        report: The report, without violations.
    """

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class SilentProgress:
    """Says nothing."""

    def played(self, num_examples: int, num_violations: int) -> None:
        """Say nothing."""

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        """Say nothing."""


def verify(
    subject: str | SubjectFactory,
    *,
    backend: str = "sim",
    ranks: int = DEFAULT_RANKS,
    examples: int = DEFAULT_EXAMPLES,
    seed: int | None = None,
    schedules: str = DEFAULT_SCHEDULES,
    jobs: int = 1,
    database: Database = None,
    require_coverage: float | None = None,
) -> Report:
    """Verify a gradient synchronizer.

    Args:
        subject: A class, a factory, a built-in name, or `module:attribute`.
        backend: `sim`, `gloo`, `nccl` (under torchrun) or `fake`.
        ranks: Largest world to try.
        examples: Number of scenarios to play.
        seed: Same seed, same scenarios; None draws one, which the report names.
        schedules: `default`, `drawn`, `all`, `all:N`, `pct` or `pct:N`: with what timing
            to play scenarios in which it matters, on `sim`.
        jobs: Number of processes that search side by side.
        database: Where violations are kept and played first by the next run: a folder, or
            one of Hypothesis' databases; None keeps nothing.
        require_coverage: Percentage of the pairs of features that must occur, and with
            them every single one; None requires nothing.

    Returns:
        The report of a search without violations.

    Raises:
        PropertyViolation: The subject violates a property.
        CoverageGap: Less was covered than required.
        UsageError: The subject, the backend or a number cannot be used.
    """
    found = resolve(subject)
    with closing(open_backend(backend, found)) as opened:
        report = run_search(
            found,
            opened,
            ranks=ranks,
            examples=examples,
            seed=seed,
            schedules=schedules,
            jobs=jobs,
            database=database,
        )
    if report.violations:
        raise PropertyViolation(report)
    gap = None if require_coverage is None else report.summary.gap(require_coverage)
    if gap is not None:
        raise CoverageGap(gap, report)
    return report


def draw_seed() -> int:
    """Draw a fresh seed, short enough to type."""
    return secrets.randbelow(_MAX_SEED)


@fresh_state()
def run_search(
    subject: Subject,
    backend: AnyBackend,
    *,
    ranks: int,
    examples: int,
    seed: int | None,
    schedules: str = DEFAULT_SCHEDULES,
    time_limit_seconds: float | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
    database: Database = None,
) -> Report:
    """Search on an open backend.

    Args:
        subject: The subject, resolved.
        backend: Where to play.
        ranks: Largest world to try.
        examples: Number of scenarios to play.
        seed: Same seed, same scenarios; None draws one.
        schedules: As in `verify`.
        time_limit_seconds: When to stop early; None means never.
        progress: Told how it goes on.
        jobs: Number of processes that search side by side.
        database: As in `verify`.

    Returns:
        The report, with or without violations.

    Raises:
        UsageError: A number is out of range.
    """
    _check_numbers(backend, ranks, examples, jobs, time_limit_seconds)
    choice = check_schedules(schedules, backend.name)
    chosen = draw_seed() if seed is None else seed
    saved = SavedViolations(open_database(database), subject, backend.name)
    earlier, num_replayed = replay_saved(saved, backend, max_ranks=ranks)
    known = frozenset(entry.violation.identity for entry in earlier.found)
    plan = SearchPlan(ranks, examples, chosen, time_limit_seconds, choice, known)
    told = progress or SilentProgress()
    if jobs == 1:
        later = search(subject, backend, plan, told)
    else:
        later = search_in_parallel(subject, backend.name, jobs, plan, told)
    result = merged([earlier, later])
    violations = [
        ReportedViolation(found.violation, found.scenario, found.decisions)
        for found in result.found
    ]
    for entry in violations:
        saved.keep(entry.recording)
    return Report(
        subject=subject.name,
        backend=backend.name,
        seed=chosen,
        examples=result.num_examples,
        seconds=result.seconds,
        coverage=result.coverage.table(),
        violations=tuple(with_witness(each, subject, backend) for each in violations),
        schedules=counts(result.known),
        explored=(
            *_replays_in_words(num_replayed, len(earlier.found)),
            *summary(result.known),
            *_overlap_in_words(*result.overlaps),
            *_held_in_words(result.held),
        ),
        summary=CoverageSummary.of(result.coverage),
    )


def _check_numbers(
    backend: AnyBackend,
    ranks: int,
    examples: int,
    jobs: int,
    time_limit_seconds: float | None,
) -> None:
    _require_positive("ranks", ranks)
    _require_positive("examples", examples)
    _require_positive("jobs", jobs)
    if time_limit_seconds is not None:
        _require_positive("time limit", time_limit_seconds)
    if isinstance(backend, TorchrunBackend):
        if ranks > backend.world_size:
            raise UsageError(
                f"expected ranks <= {backend.world_size}, the torchrun job's, got {ranks}"
            )
        if jobs > 1:
            raise UsageError(
                f"expected jobs of 1, got {jobs}: torchrun's processes are the ranks of "
                "one search"
            )


def _replays_in_words(num_played: int, num_failing: int) -> Iterator[str]:
    if num_played:
        yield (
            f"saved by earlier runs, and played first: {num_played} scenario(s), with "
            f"{num_failing} distinct violation(s)"
        )


def _overlap_in_words(num_done: int, num_possible: int) -> Iterator[str]:
    if num_possible:
        yield (
            f"overlap: a reduction started before backward ended in {num_done} of "
            f"{num_possible} steps of ranks in which one could"
        )


def _held_in_words(held: HeldMemory) -> Iterator[str]:
    if held.is_pile:
        yield (
            f"memory: record_stream kept up to {held.num_blocks} freed blocks "
            f"({bytes_text(held.num_bytes)}, the largest {bytes_text(held.largest)}, "
            f"step {held.step}, rank {held.rank}) from reuse; freeing after "
            "stream.wait_event() keeps none"
        )


def with_witness(
    entry: ReportedViolation, subject: Subject, backend: AnyBackend
) -> ReportedViolation:
    """Add what comes of a missing order, if a violation is about one.

    Args:
        entry: The violation.
        subject: Whose it is.
        backend: Where it was seen; only on `sim` can orders be chosen.

    Returns:
        The same, with more to tell.
    """
    if not isinstance(backend, SimBackend):
        return entry
    witness = find_witness(
        entry.violation, entry.scenario, subject, backend, entry.schedule
    )
    return replace(entry, witness=witness)


def check_schedules(schedules: str, backend: str) -> ScheduleChoice:
    """Read a choice of schedules, and refuse one that a backend cannot play.

    Args:
        schedules: As in `verify`.
        backend: Name of the backend.

    Returns:
        The choice.

    Raises:
        UsageError: There is no such choice, or not there.
    """
    choice = ScheduleChoice.parse(schedules)
    if choice.mode in {"all", "pct"} and backend != "sim":
        raise UsageError(
            f"schedules {schedules!r} need the sim backend: on {backend}, the machine's own "
            "timing decides"
        )
    return choice


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise UsageError(f"expected {name} > 0, got {value}")
