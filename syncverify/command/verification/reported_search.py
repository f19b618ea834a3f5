"""Verify on an open backend: replay saved violations, search for new ones, report both."""

import time
from collections.abc import Collection
from dataclasses import replace

from syncverify.errors import UsageError
from syncverify.explain.repair.diagnosis import all_diagnosed
from syncverify.playing.announced_counts import with_announced_counts
from syncverify.playing.choice import AnyBackend, features_not_played, limits_of
from syncverify.playing.torchrun import TorchrunBackend
from syncverify.progress import SilentProgress
from syncverify.report import coverage
from syncverify.report.observed import ObservedFeature
from syncverify.report.played_lines import LineCoverage
from syncverify.report.report import NotTried, Report
from syncverify.report.run import explanation_of
from syncverify.scenario.bounds import check_ranks
from syncverify.scenario.schedule import ScheduleChoice, num_scenarios_by_extent
from syncverify.scenario.settings import Settings
from syncverify.scenario.small_scope import SmallScope
from syncverify.scenario.space import Space
from syncverify.search.budget import AFTER_ERRORS
from syncverify.search.isolation import default_torch_state
from syncverify.search.judge import Backend, Identity
from syncverify.search.observation import (
    INTERRUPTED,
    Observing,
    features_beyond,
    observe,
)
from syncverify.search.result import SearchResult, merged
from syncverify.search.saved_violations import (
    KeepingProgress,
    Replay,
    SavedViolations,
    replay_saved,
    shrink_replayed,
)
from syncverify.search.search import search
from syncverify.search.sharded_search import campaign_of, crew_of
from syncverify.search.shards import exhaustive_settings
from syncverify.search.violation_database import open_database
from syncverify.subjects.subject import Subject
from syncverify.subjects.subject_options import check_worlds


class ObservationInterrupted(KeyboardInterrupt):  # as its base
    """An interrupt while features were observed, with the report of all that was judged until then."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = replace(report, is_interrupted=True)


def with_features(
    report: Report,
    subject: Subject,
    backend: Backend,
    observing: Observing,
    known: Collection[Identity],  # of plain steps, which say nothing of a feature
) -> Report:
    """Return the report of a search with an entry for each feature that the contract lacks."""
    features = features_beyond(subject.capabilities)
    observed = list[ObservedFeature]()
    observations = observe(subject, backend, observing, features, known)
    try:
        for number, feature in enumerate(features, start=1):
            observing.tell(feature, number, len(features), None)
            observation = next(observations)
            found, texts = observation.found, dict[str, str]()
            if found is not None:
                texts = {
                    "summary": found.violation.summary,
                    "token": found.token,
                    "diagnosis": explanation_of(found, **report.names).text(),
                }
            rating, counts = observation.rating, dict(observation.counts)
            each = ObservedFeature(feature, rating, counts, observation.reason, **texts)
            observed.append(each)
            observing.tell(feature, number, len(features), rating)
    except KeyboardInterrupt:
        observed += (
            ObservedFeature(feature, "not tried", reason=INTERRUPTED)
            for feature in features[len(observed) :]
        )
        raise ObservationInterrupted(replace(report, beyond=tuple(observed))) from None
    return replace(report, beyond=tuple(observed))


@default_torch_state()
def run_search(
    subject: Subject,
    backend: AnyBackend,
    settings: Settings,
    observing: Observing | None = None,
) -> Report:
    """Search on an open backend, then observe features beyond the contract, unless it is None."""
    started = time.monotonic()
    check_search(subject, backend, settings)
    notes = limits_of(backend.name, subject.capabilities)
    notes += coverage.newer_values_lines(subject.capabilities)
    subject = _played(with_announced_counts(subject, backend.name, notes), backend)
    opened = open_database(settings.database, notes)
    if settings.exhaustive:
        settings = exhaustive_settings(settings, subject.capabilities)
    saved = SavedViolations(opened, subject, backend.name, notes)
    keeping = KeepingProgress(saved, settings.progress or SilentProgress())
    with campaign_of(subject, settings, saved.tokens) as campaign:
        if campaign is not None:
            saved = replace(saved, only=campaign.done.saved_before)
        replay = replay_saved(saved, backend, keeping, max_ranks=settings.ranks)
        results = list[SearchResult]()
        has_first = settings.stop_at_first and replay.result.violations
        if not (replay.result.stopped or has_first):
            results.append(
                search(
                    subject,
                    backend,
                    settings=settings,
                    progress=keeping,
                    known=replay.shrunk,
                    crew=crew_of(settings),
                    campaign=campaign,
                )
            )
        if replay.num_played:
            earlier = shrink_replayed(replay, results, subject, backend, keeping)
            results.insert(0, earlier)
    result = merged(results)
    keeping.keep_only({entry.violation.identity for entry in result.violations})
    report = _report(subject, backend, settings, replay, result)
    report = replace(report, explored=(*report.explored, *notes))
    if result.stopped:
        num_left = max(0, settings.examples - result.num_examples)
        num_beyond = len(features_beyond(subject.capabilities)) if observing else 0
        if not (num_left or num_beyond):
            return report
        left = NotTried(num_left, settings.examples, num_beyond, result.stopped)
        return replace(report, not_tried=left)
    has_first = settings.stop_at_first and result.violations
    if observing is None or settings.exhaustive or has_first:
        return report
    limit = settings.time_limit_seconds
    observing = replace(
        observing,
        max_ranks=settings.ranks,
        random_seed=settings.random_seed,
        deadline=None if limit is None else started + limit,
    )
    known = {each for entry in result.violations for each in entry.identities}
    return with_features(report, subject, backend, observing, known)


def _played(subject: Subject, backend: AnyBackend) -> Subject:
    """Return the subject, whose contract leaves out what a backend does not play."""
    own = subject.capabilities
    outside = own.outside | features_not_played(backend.name, own)
    if backend.name != "sim":  # a rank is a process, or a GPU
        outside |= {"size=many ranks"}
    return replace(subject, capabilities=replace(own, outside=outside))


def _report(
    subject: Subject,
    backend: AnyBackend,
    settings: Settings,
    replay: Replay,
    result: SearchResult,
) -> Report:
    own, statistics = subject.capabilities, result.statistics
    found = all_diagnosed(result.violations, subject, backend, settings.ranks)
    bound = None
    if settings.exhaustive:
        scope, num_played = SmallScope.parse(settings.scope), result.num_examples
        bound = coverage.Bound(
            scope, settings.examples, num_played, statistics.schedules, len(found)
        )
    # From a list: the search for a fix looks at all objects of the process, and must not meet a
    # tuple that Python has yet to give its size.
    return Report.of(
        subject,
        backend.name,
        found,
        seed=settings.random_seed,
        examples=result.num_examples,
        seconds=result.seconds,
        coverage=result.coverage.table(),
        schedules=num_scenarios_by_extent(statistics.schedules),
        explored=tuple(
            coverage.explored_lines(
                statistics,
                num_replayed=replay.num_played,
                num_failing=len(replay.result.violations),
                promises_overlap=own.overlaps_backward,
            )
        ),
        summary=coverage.CoverageSummary.of(result.coverage),
        fails_on_wrong=own.fail_on_wrong,
        lines=LineCoverage.of(statistics.lines),
        num_refused=statistics.num_refused,
        most_steps=statistics.most_steps,
        always_raises=result.stopped == AFTER_ERRORS,
        campaign=result.campaign,
        bound=bound,
    )


def check_schedules(schedules: str, backend: str) -> ScheduleChoice:
    """Return a choice of schedules that a user wrote; raise UsageError if a backend cannot play it."""
    choice = ScheduleChoice.parse(schedules)
    if choice.mode in {"all", "pct"} and backend != "sim":
        raise UsageError(
            f"schedules {schedules!r} need the sim backend: on {backend}, the machine's own "
            "timing decides"
        )
    return choice


def check_search(subject: Subject, backend: AnyBackend, settings: Settings) -> None:
    """Raise UsageError for a setting that cannot be used with a subject or a backend."""
    check_schedules(settings.schedules, backend.name)
    _check_numbers(backend, settings)
    check_worlds(subject.factory, subject.name, settings.ranks)
    if settings.focus is not None:
        space = Space(subject.capabilities, settings.ranks)
        space.require_focus(settings.focus)


def _check_numbers(backend: AnyBackend, settings: Settings) -> None:
    ranks, jobs = settings.ranks, settings.jobs
    numbers = {
        "ranks": ranks,
        "examples": settings.examples,
        "jobs": jobs,
        "time limit": settings.time_limit_seconds,
    }
    for name, value in numbers.items():
        if value is not None and not value > 0:
            raise UsageError(f"expected {name} > 0, got {value}")
    check_ranks(backend.name, ranks)
    cluster = settings.cluster
    if cluster is not None and jobs > 1:
        raise UsageError(
            f"expected jobs or a cluster, got {jobs} jobs and {cluster!r}: workers of this "
            "machine are local:N"
        )
    if not isinstance(backend, TorchrunBackend):
        return
    most, of_one = (
        backend.world_size,
        "torchrun's processes are the ranks of one search",
    )
    if cluster is not None:
        raise UsageError(f"expected no cluster, got {cluster!r}: {of_one}")
    if ranks > most:
        raise UsageError(f"expected ranks <= {most}, the torchrun job's, got {ranks}")
    if jobs > 1:
        raise UsageError(f"expected jobs of 1, got {jobs}: {of_one}")
