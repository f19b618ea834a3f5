"""Properties of the caller's current stream, and of overlap with backward."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncverify.judge.evidence import Event, Evidence
from syncverify.judge.properties.judgement import Judgement, Property
from syncverify.judge.violation import Violation, finding
from syncverify.scenario.scenario import Scenario
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    Moment,
    SubjectCall,
    SubjectReturn,
)
from syncverify.trace.regions import overlap as share_bytes
from syncverify.trace.run import Run, Trace

# Backwards with a hook of the user behind the synchronizer's own, after an accumulation.
_HAS_LATER_HOOKS = frozenset({"hook_reads_grad", "hook_writes_grad", "hooks_of_others"})


def _could_overlap(judgement: Judgement) -> bool:
    return judgement.reference.capabilities.overlaps_backward and bool(
        overlap(judgement.scenario, judgement.run).num_possible
    )


@Property(
    order=210,
    condition="A call of the subject returns.",
    applies=lambda seen: seen.has(SubjectReturn),
    example="a side stream that stays current after a call",
    needs_data=False,
    # Whatever stream is current, a sum has its factor, its dtype and its shape.
    never_gives=("scaled", "wrong_dtype", "wrong_shape"),
)
def stream_context_is_restored(judgement: Judgement) -> Iterator[Violation]:
    """A call of the subject that returns leaves the current stream as it was.

    For all ranks and calls that return.

    Catches: a stream context that is entered and never left, after which the caller
    computes on the communication stream. Says nothing of calls that raise.
    """
    for rank, trace in enumerate(judgement.traces):
        before: str | None = None
        for record in trace:
            if isinstance(record, SubjectCall):
                before = record.stream
            elif isinstance(record, SubjectReturn) and record.stream != before:
                at, stream = record.moment, record.stream
                summary = (
                    f"rank {rank}: expected stream {before!r} to be current again after "
                    f"{at.phase}() of step {at.step}, but {stream!r} is"
                )
                facts = {"moment": at, "stream": stream}
                evidence = Evidence(rank=rank, facts=facts)
                yield finding("stream_changed", summary, rank, None, evidence)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Number of steps in which a reduction overlapped with backward, over all ranks."""

    # Steps in which the first bucket to be launched was complete before the last gradient of
    # another bucket, and those among them in which it was launched before that gradient.
    num_possible: int
    num_done: int
    # Rank and record of the first launch that could have come earlier.
    missed: tuple[int, CollectiveLaunch] | None

    @property
    def share(self) -> float | None:
        """Return the done part of the possible overlaps; None where none was possible."""
        return self.num_done / self.num_possible if self.num_possible else None


@Property(
    order=220,
    condition="The subject promises to overlap, and in some step a reduction could (on `sim`).",
    applies=_could_overlap,
    example="launches that all wait for the end of backward",
    promise="overlaps_backward",
)
def overlap_is_possible(judgement: Judgement) -> Iterator[Violation]:
    """A subject that promises to overlap reduces some bucket while backward still runs.

    For steps of at least two buckets, from the second step on: in the first step a subject
    may learn which gradients come. It is violated only if no reduction of the whole run was
    launched between the last gradient of its bucket and the last gradient of another
    bucket, although one could have been.

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
    possible, events = measured.num_possible, (Event("", launch),)
    summary = (
        f"rank {rank}: expected a reduction to start during backward, but none did in "
        f"{possible} possible steps; for example {launch} in {launch.moment}"
    )
    facts = {"possible": possible, "overlapped": 0}  # steps
    evidence = Evidence(rank=rank, events=events, facts=facts)
    yield finding("never_overlapped", summary, rank, launch.parameters, evidence)


def overlap(scenario: Scenario, run: Run) -> Overlap:
    """Measure how often a reduction overlapped with backward where it could."""
    done: list[bool] = []
    missed: tuple[int, CollectiveLaunch] | None = None
    for rank, rank_run in enumerate([] if _may_not_overlap(scenario) else run.ranks):
        for step in range(1, scenario.num_steps):
            last = Moment("backward", step, scenario.accumulations[step] - 1)
            first = _first_possible(rank_run.trace, last)
            if first is not None:
                launch, is_early = first
                done.append(is_early)
                missed = missed or (None if is_early else (rank, launch))
    return Overlap(len(done), sum(done), missed)


def _may_not_overlap(scenario: Scenario) -> bool:
    """Tell whether a subject may have a reason to launch late."""
    return (
        # After a step that did not go as agreed, a subject may have to learn anew which gradients
        # come. An unused parameter is known as unused only when backward is over.
        bool(scenario.events)
        or any(spec.used != "always" for spec in scenario.parameters)
        # A subject that lets the user's later hooks finish cannot launch from its own hook.
        or scenario.backward in _HAS_LATER_HOOKS
        # Only calls of `wait()` have one order on all ranks for collectives of two synchronizers.
        or scenario.update != "after_wait"
        or scenario.synchronizers == "two"
        # Buckets may be cut in the order of the first step, which this one does not repeat.
        or scenario.readiness == "by_rank/by_step"
    )


def _first_possible(trace: Trace, last: Moment) -> tuple[CollectiveLaunch, bool] | None:
    """Return the first launch of a step if it could overlap, and whether it did."""
    launches = [
        (index, record)
        for index, record in enumerate(trace)
        if isinstance(record, CollectiveLaunch)
        and record.reduces
        and record.parameters
        and record.moment.step == last.step
        and record.moment.phase in {"backward", "wait"}
    ]
    for index, launch in launches[:1]:
        others = [e for _, e in launches if e.parameters != launch.parameters]
        own = _last_write(trace, last, [launch])
        other = _last_write(trace, last, others)
        if own is not None and other is not None and own < other:
            return launch, index < other
    return None


def _last_write(
    trace: Trace, moment: Moment, launches: Sequence[CollectiveLaunch]
) -> int | None:
    """Return the position at which a backward last wrote memory of these launches."""
    regions = [region for launch in launches for region in launch.regions]
    written = (
        index
        for index, record in enumerate(trace)
        if isinstance(record, Access)
        and record.moment == moment
        and share_bytes(record.writes, regions)
    )
    return max(written, default=None)
