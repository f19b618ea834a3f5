"""Properties of how a subject treats the caller's streams and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncverify.properties.judgement import Finding, Judgement
from syncverify.run import Run
from syncverify.scenario import Scenario
from syncverify.trace import (
    Access,
    CollectiveLaunch,
    Event,
    LifecycleCall,
    LifecycleReturn,
    Moment,
)


def stream_context_is_restored(judgement: Judgement) -> Iterator[Finding]:
    """When a call of the subject returns, the stream is current that was before it.

    For all ranks and calls that return.

    Catches: a stream context that is entered and never left, after which the caller
    computes on the communication stream. Says nothing of calls that raise.
    """
    for rank, rank_run in enumerate(judgement.run.ranks):
        before: str | None = None
        for event in rank_run.events:
            if isinstance(event, LifecycleCall):
                before = event.stream
            elif isinstance(event, LifecycleReturn) and event.stream != before:
                yield _changed(rank, event, before)


def _changed(rank: int, event: LifecycleReturn, before: str | None) -> Finding:
    return Finding(
        "stream_changed",
        f"rank {rank}: expected stream {before!r} to be current again after "
        f"{event.moment.phase}() of step {event.moment.step}, but {event.stream!r} is",
        rank,
        None,
        {"rank": rank, "moment": str(event.moment), "stream": event.stream},
    )


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many steps of ranks overlapped a reduction with backward.

    Attributes:
        num_possible: Steps in which the bucket that was launched first was complete
            while gradients of another one were still to come.
        num_done: Those of them in which it was launched then.
        missed: The first launch that could have come earlier: its rank and event.
    """

    num_possible: int
    num_done: int
    missed: tuple[int, CollectiveLaunch] | None

    @property
    def share(self) -> float | None:
        """Return the part of the possible that was done; None if nothing was."""
        return self.num_done / self.num_possible if self.num_possible else None


def overlap_is_possible(judgement: Judgement) -> Iterator[Finding]:
    """A subject that promises to overlap reduces some bucket while backward still runs.

    Looked at are steps of at least two buckets, from the second step on, since in the
    first one a subject may learn which gradients come. It is a finding only if in the
    whole run no reduction was launched between the last gradient of its bucket and the
    last gradient of another one, although it could have been.

    Catches: launches that all wait for the end of backward. Does not say that enough
    overlaps: `overlap` measures how much. Does not see gradients that are copied into
    a bucket only when it is launched.
    """
    if not judgement.reference.capabilities.overlaps_backward:
        return
    measured = overlap(judgement.scenario, judgement.run)
    if measured.missed is None or measured.num_done:
        return
    rank, launch = measured.missed
    yield Finding(
        "never_overlapped",
        f"rank {rank}: expected some reduction to start while backward still ran, but in "
        f"{measured.num_possible} steps in which one could, none did; such as {launch} in "
        f"{launch.moment}",
        rank,
        ", ".join(launch.parameters),
        {"rank": rank, "possible": measured.num_possible, "overlapped": 0},
    )


def overlap(scenario: Scenario, run: Run) -> Overlap:
    """Measure how often a reduction overlapped with backward where it could."""
    done: list[bool] = []
    missed: tuple[int, CollectiveLaunch] | None = None
    # What was not used is known as such only when backward is over, and after a step
    # that did not go as agreed a subject may have to learn anew.
    if scenario.events or any(spec.used != "always" for spec in scenario.parameters):
        return Overlap(0, 0, None)
    for rank, rank_run in enumerate(run.ranks):
        if not any(isinstance(event, Access) for event in rank_run.events):
            continue
        for step in range(1, scenario.num_steps):
            last = Moment("backward", step, scenario.accumulations[step] - 1)
            first = _first_possible(rank_run.events, last)
            if first is not None:
                launch, is_early = first
                done.append(is_early)
                missed = missed or (None if is_early else (rank, launch))
    return Overlap(len(done), sum(done), missed)


def _first_possible(
    events: Sequence[Event], last: Moment
) -> tuple[CollectiveLaunch, bool] | None:
    """Return the first launch of a step if it could overlap, and whether it did."""
    launches = [
        (index, event)
        for index, event in enumerate(events)
        if isinstance(event, CollectiveLaunch)
        and event.reduces
        and event.parameters
        and event.moment.step == last.step
        and event.moment.phase in {"backward", "wait"}
    ]
    if not launches:
        return None
    index, launch = launches[0]
    others = [other for _, other in launches if other.parameters != launch.parameters]
    own = _last_write(events, last, [launch])
    other = _last_write(events, last, others)
    if own is None or other is None or own > other:
        return None
    return launch, index < other


def _last_write(
    events: Sequence[Event], moment: Moment, launches: Sequence[CollectiveLaunch]
) -> int | None:
    """Return where a backward last wrote what these launches contribute."""
    regions = [region for launch in launches for region in launch.regions]
    written = (
        index
        for index, event in enumerate(events)
        if isinstance(event, Access)
        and event.moment == moment
        and any(write.overlaps(region) for write in event.writes for region in regions)
    )
    return max(written, default=None)
