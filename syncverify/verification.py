"""Verify a subject: replay saved violations, search for new ones, report both."""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from dataclasses import replace

from syncverify.backends.announced_counts import with_announced_counts
from syncverify.backends.choice import (
    AnyBackend,
    features_not_played,
    limits_of,
    open_backend,
)
from syncverify.backends.torchrun import TorchrunBackend
from syncverify.bounds import check_ranks
from syncverify.defaults import (
    DEFAULT_EXAMPLES,
    DEFAULT_RANKS,
    DEFAULT_SCHEDULES,
)
from syncverify.errors import UsageError
from syncverify.plain_text import counted
from syncverify.repair.diagnosis import all_diagnosed
from syncverify.report.beyond import Observing, with_features
from syncverify.report.coverage import CoverageSummary
from syncverify.report.explored import explored_lines
from syncverify.report.played_lines import LineCoverage
from syncverify.report.report import Report
from syncverify.report.verdict_errors import CoverageGap, PropertyViolation
from syncverify.scenario.space import Space
from syncverify.search.budget import AFTER_ERRORS
from syncverify.search.isolation import default_torch_state
from syncverify.search.keeping import KeepingProgress
from syncverify.search.observation import features_beyond
from syncverify.search.occurrences import Occurrences
from syncverify.search.parallel import search_in_parallel
from syncverify.search.replay import (
    Database,
    Replay,
    SavedViolations,
    open_database,
    replay_saved,
    shrink_replayed,
)
from syncverify.search.result import (
    Progress,
    SearchPlan,
    SearchResult,
    SilentProgress,
    merged,
)
from syncverify.search.schedules import ScheduleChoice, num_scenarios_by_extent
from syncverify.search.search import search
from syncverify.subjects.contract_choice import ContractChoice
from syncverify.subjects.subject import Subject, SubjectFactory, resolve
from syncverify.subjects.subject_options import check_worlds

_MAX_SEED = 2**32


def verify(
    subject: str | SubjectFactory,
    *,
    contract: ContractChoice | None = None,
    backend: str = "sim",
    ranks: int = DEFAULT_RANKS,
    examples: int = DEFAULT_EXAMPLES,
    seed: int | None = None,
    schedules: str = DEFAULT_SCHEDULES,
    time_limit_seconds: float | None = None,
    jobs: int = 1,
    database: Database = None,
    require_coverage: float | None = None,
    require_lines: float | None = None,
    stop_at_first: bool = False,
    beyond: bool = False,
    focus: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Verify a gradient synchronizer.

    Args:
        subject: A class, a factory, a built-in name, or `module:attribute`.
        contract: `plain`, `everything`, the name of a built-in subject, a TOML file, or a
            `Capabilities`; None takes the contract of the subject.
        backend: `sim`, `gloo`, a name of NCCL such as `nccl` (under torchrun), or `fake`.
        ranks: Largest world size.
        examples: Number of scenarios to play.
        seed: Seed of the scenarios; None draws one, which the report names.
        schedules: `default`, `drawn`, `all`, `all:N`, `pct` or `pct:N`: the timings to play
            on `sim`, for each scenario in which timing matters.
        time_limit_seconds: Seconds after which no run starts; None is no limit.
        jobs: Number of processes that search in parallel.
        database: Store of violations, which the next run plays first: a folder, or a
            Hypothesis database; None saves nothing. Each violation is saved when it is met.
        require_coverage: Percentage of the pairs of features that must occur, together
            with every single feature; None requires nothing.
        require_lines: Percentage of the lines in the subject's Python functions that a
            scenario must run, on `sim` or `fake`; None requires nothing.
        stop_at_first: Whether the exploration ends at the first violation.
        beyond: Whether features beyond the contract are observed, for `Report.beyond`. A
            contract with `fail_on_wrong` always observes them.
        focus: Topic of `syncverify run --focus`, such as `bucket_cap`, of which most
            scenarios then have a special value; None for no focus.
        progress: Receives each scenario, each violation and each run for shrinking.

    Returns:
        The report of a search without violations.

    Raises:
        PropertyViolation: The subject violates a property.
        CoverageGap: Fewer features occurred than required.
        UsageError: The subject, the backend or a number cannot be used.
    """
    __tracebackhide__ = True  # pytest shows the user's lines and the diagnosis
    try:
        found = resolve(subject, contract)
        observes = beyond or found.capabilities.fail_on_wrong
        with closing(open_backend(backend, found)) as opened:
            report = run_search(
                found,
                opened,
                ranks=ranks,
                examples=examples,
                seed=seed,
                schedules=schedules,
                time_limit_seconds=time_limit_seconds,
                progress=progress,
                jobs=jobs,
                database=database,
                stop_at_first=stop_at_first,
                observing=Observing() if observes else None,
                focus=focus,
            )
    except UsageError as error:
        # The caller's mistake: no line of the harness explains it.
        raise error.with_traceback(None) from error.__cause__
    if report.has_failed:
        raise PropertyViolation(report)
    gap = report.gap(require_coverage, require_lines)
    if gap is not None:
        raise CoverageGap(gap, report)
    return report


def draw_seed() -> int:
    """Draw a fresh seed, short enough to type."""
    return secrets.randbelow(_MAX_SEED)


@default_torch_state()
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
    stop_at_first: bool = False,
    observing: Observing | None = None,
    focus: str | None = None,
) -> Report:
    """Search on an open backend; the other arguments are those of `verify`.

    No run starts after `time_limit_seconds`; None is no limit. `progress` receives each
    scenario, each run for shrinking. `observing` says how features beyond the contract are observed;
    None observes none.

    Returns:
        The report, with or without violations.

    Raises:
        UsageError: A number is out of range.
        ObservationInterrupted: An interrupt after the search, with its report.
    """
    started = time.monotonic()
    _check_numbers(backend, ranks, examples, jobs, time_limit_seconds)
    check_worlds(subject.factory, subject.name, ranks)
    choice = check_schedules(schedules, backend.name)
    chosen_seed = draw_seed() if seed is None else seed
    notes = limits_of(backend.name, subject.capabilities)
    subject = with_announced_counts(subject, backend.name, notes)
    not_played = features_not_played(backend.name, subject.capabilities)
    outside = subject.capabilities.outside | not_played
    subject = replace(
        subject, capabilities=replace(subject.capabilities, outside=outside)
    )
    if focus is not None:
        Space(subject.capabilities, ranks).require_focus(focus)
    opened = open_database(database, notes)
    saved = SavedViolations(opened, subject, backend.name, notes)
    keeping = KeepingProgress(saved, progress or SilentProgress())
    replay = replay_saved(saved, backend, keeping, max_ranks=ranks)
    plan = SearchPlan(
        max_ranks=ranks,
        num_examples=examples,
        random_seed=chosen_seed,
        time_limit_seconds=time_limit_seconds,
        choice=choice,
        known=replay.shrunk,
        stop_at_first=stop_at_first,
        focus=focus,
    )
    result = _searched(subject, backend, plan, jobs, replay, keeping)
    keeping.keep_only(result.violations)
    report = Report(
        subject=subject.name,
        backend=backend.name,
        seed=chosen_seed,
        examples=result.num_examples,
        seconds=result.seconds,
        coverage=result.coverage.table(),
        violations=(
            # A list first: the search for a fix looks at all objects of the process, and must
            # not meet a tuple that Python has yet to give its size.
            *all_diagnosed(result.violations, subject, backend, ranks),
        ),
        schedules=num_scenarios_by_extent(result.statistics.schedules),
        explored=(
            *explored_lines(
                result.statistics,
                num_replayed=replay.num_played,
                num_failing=len(replay.result.violations),
                promises_overlap=subject.capabilities.overlaps_backward,
            ),
            *notes,
        ),
        summary=CoverageSummary.of(result.coverage),
        contract=subject.capabilities.in_words(),
        contract_choice=subject.contract_choice,
        fails_on_wrong=subject.capabilities.fail_on_wrong,
        lines=LineCoverage.of(result.statistics.lines),
        num_refused=result.statistics.num_refused,
        always_raises=result.stopped == AFTER_ERRORS,
    )
    if result.stopped:
        return replace(report, not_tried=_not_tried(plan, result, subject, observing))
    if observing is None or (stop_at_first and result.violations):
        return report
    deadline = None if time_limit_seconds is None else started + time_limit_seconds
    observation = observing.plan(ranks, chosen_seed, deadline)
    known = {each for entry in result.violations for each in entry.identities}
    return with_features(report, subject, backend, observation, known, observing.tell)


def _not_tried(
    plan: SearchPlan,
    result: SearchResult,
    subject: Subject,
    observing: Observing | None,
) -> str:
    """List in one line what a search left out that ended early."""
    num_left = plan.num_examples - result.num_examples
    left = list[str]()
    if num_left > 0:
        left.append(f"{num_left} of {counted(plan.num_examples, 'scenario')}")
    num_beyond = len(features_beyond(subject.capabilities)) if observing else 0
    if num_beyond:
        left.append(f"{counted(num_beyond, 'feature')} beyond the contract")
    return f"not tried: {' and '.join(left)}, since {result.stopped}" if left else ""


def _searched(
    subject: Subject,
    backend: AnyBackend,
    plan: SearchPlan,
    jobs: int,
    replay: Replay,
    progress: KeepingProgress,
) -> SearchResult:
    """Search, and return the result together with that of the replay, all shrunk."""
    results = list[SearchResult]()
    is_enough = plan.stop_at_first and replay.result.violations
    if not (is_enough or replay.result.stopped):
        if jobs == 1:
            results.append(search(subject, backend, plan, progress))
        else:
            results.append(
                search_in_parallel(subject, backend.name, jobs, plan, progress)
            )
    met = Occurrences.merged([each.met for each in (replay.result, *results)])
    shrunk = {each.violation.identity for one in results for each in one.violations}
    explained = replay.unshrunk - set(met.counting())
    earlier = shrink_replayed(replay, subject, backend, shrunk | explained, progress)
    return merged([earlier, *results])


def check_schedules(schedules: str, backend: str) -> ScheduleChoice:
    """Return a choice of schedules that a user wrote and that a backend can play.

    Raises:
        UsageError: The choice does not exist, or not on this backend.
    """
    choice = ScheduleChoice.parse(schedules)
    if choice.mode in {"all", "pct"} and backend != "sim":
        raise UsageError(
            f"schedules {schedules!r} need the sim backend: on {backend}, the machine's own "
            "timing decides"
        )
    return choice


def _check_numbers(
    backend: AnyBackend,
    ranks: int,
    examples: int,
    jobs: int,
    time_limit_seconds: float | None,
) -> None:
    numbers = {"ranks": ranks, "examples": examples, "jobs": jobs}
    for name, value in {**numbers, "time limit": time_limit_seconds}.items():
        if value is not None and not value > 0:
            raise UsageError(f"expected {name} > 0, got {value}")
    check_ranks(backend.name, ranks)
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
