"""Properties of work that streams may run in the wrong order.

Note [One disorder, one property]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A missing wait shows in many pairs of accesses. All pairs that one remedy removes are one
disorder. Its first pair chooses the property, by the first line that fits:

    memory is given back early                          memory_outlives_its_streams
    one use is in zero_grad()                           zero_grad_waits_for_reduce
    the second use is outside of the subject's calls    wait_orders_reads_after_reduce
    the second use is a collective, the first is not    reduce_reads_after_accumulation
    the first use is a collective, or uses memory that  bucket_is_exclusive_while_reducing
      a collective has touched in this step
    otherwise                                           reduce_reads_after_accumulation
"""

import functools
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from syncverify.judge.ordering.missing_waits import streams_of
from syncverify.judge.ordering.races import EarlyFree, Race, Unordered
from syncverify.judge.ordering.remedies import Disorder, last_turn
from syncverify.judge.properties.circumstances import after_like_step
from syncverify.judge.properties.copied_buckets import BUFFER_SHARED, refill_in_flight
from syncverify.judge.properties.judgement import (
    Judgement,
    Needs,
    Property,
    early_launches,
)
from syncverify.judge.properties.ordering_words import evidence, summary, uses_of
from syncverify.judge.traced import Traced, launches_of
from syncverify.judge.violation import (
    Early,
    Incomplete,
    Pair,
    Signs,
    Unawaited,
    Violation,
    finding,
)
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    StorageFreed,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import overlap
from syncverify.trace.source_lines import NoLine, SourceLine, lines_among

_WHERE_RECORDED = (
    "A rank reduces, and some memory is used on several streams (recorded on `sim`)."
)


def _reduces_recorded_memory(judgement: Judgement) -> bool:
    return any(
        any(launch.reduces for launch in launches_of(trace))
        and any(isinstance(record, Access) for record in trace)
        for trace in judgement.traces
    )


_property_of_order = functools.partial(
    Property,
    condition=_WHERE_RECORDED,
    applies=_reduces_recorded_memory,
    # A stream that stays current after a call makes later work run without an order.
    follows=("stream_context_is_restored",),
    leads_to=("every_rank_finishes",),
    # Whatever runs first, a sum has its factor, its dtype and its shape. Work that the host queues
    # after a launch is in no sum, and no wait brings it there.
    never_gives=("reduced_early", "scaled", "wrong_dtype", "wrong_shape"),
)
# A wait would order the work in the wrong order, or keep the wrong sum.
_NO_WAIT_MENDS = ("hook_too_early", BUFFER_SHARED)
# The cause that is left where no other one fits: another disorder of its line explains it.
FALLBACK = "accumulated_unordered"


def _zeroes_recorded_memory(judgement: Judgement) -> bool:
    phases = (e.moment.phase for e in judgement.records if isinstance(e, Access))
    return "zero_grad" in phases


@_property_of_order(
    order=60,
    example="a launch that does not wait for the stream that filled its bucket",
)
def reduce_reads_after_accumulation(judgement: Judgement) -> Iterator[Violation]:
    """A reduction reads gradients after all work that was queued before to make them.

    For all ranks: each access of the reduction is ordered after each accumulation that the
    host queued before it and that touches the same bytes. Accesses of the reduction are
    those of the collective, and those of the work with which the subject prepares it.

    Catches: a communication stream that does not wait for the stream that filled the
    bucket, or for only one of several. Does not judge work that the host queues later:
    `bucket_is_exclusive_while_reducing` does.
    """
    yield from _of_family(judgement, "reduced_before_accumulated", FALLBACK)


@_property_of_order(
    order=70,
    example="a bucket that is refilled or copied out in flight",
)
def bucket_is_exclusive_while_reducing(judgement: Judgement) -> Iterator[Violation]:
    """While a reduction is in flight, nothing else touches the memory that it uses.

    For all ranks: work that the subject or a backward queues after the launch of a
    collective is ordered after that collective wherever the two share a byte, unless both
    only read.

    Catches: buckets launched before their last gradient, buffers refilled early, results
    copied out without waiting, two communicators on one bucket. Does not promise that the
    bucket was complete at its launch: values show that.
    """
    in_flight = "touched_in_flight", "collectives_overlap"
    yield from _of_family(judgement, *in_flight, *_NO_WAIT_MENDS)


@_property_of_order(
    order=80,
    example="a `wait()` that waits for nothing, or on the wrong stream",
)
def wait_orders_reads_after_reduce(judgement: Judgement) -> Iterator[Violation]:
    """After a call of the subject, uses of gradients run after the work that the call queued.

    For all ranks: each use of a gradient by the training program itself, on the stream
    that is current, is ordered after every write of the subject to the same bytes.

    Catches: a `wait()` that waits for nothing, or on the wrong stream, or for the wrong
    work. Does not promise anything to streams other than the current one.
    """
    yield from _of_family(judgement, "read_before_reduced")


@_property_of_order(
    order=90,
    condition="`zero_grad()` touches memory that several streams use (recorded on `sim`).",
    applies=_zeroes_recorded_memory,
    example="a bucket that is cleared in flight",
    leads_to=("zero_grad_clears",),
)
def zero_grad_waits_for_reduce(judgement: Judgement) -> Iterator[Violation]:
    """`zero_grad()` clears gradients after all earlier uses, and before all later ones.

    For all ranks: its work is ordered after all earlier work that touches the same bytes,
    and before all later work that does.

    Catches: buffers cleared in flight, or cleared on a stream that the next backward
    does not wait for. Does not promise that they are cleared: `zero_grad_clears` does.
    """
    yield from _of_family(judgement, "zeroed_in_flight", "used_before_zeroed")


@_property_of_order(
    in_any_program=lambda traced: _of_lines(traced, EarlyFree, "freed_in_use"),
    order=100,
    condition="Memory that several streams used is given back (recorded on `sim`).",
    applies=lambda seen: seen.has(StorageFreed),
    example="a temporary dropped while a side stream uses it",
)
def memory_outlives_its_streams(judgement: Judgement) -> Iterator[Violation]:
    """Memory goes back to its pool only when no other stream may still use it.

    For all ranks: each use of a storage that is freed is ordered before the next work on
    the stream of its pool, or is on a stream that `record_stream` named.

    Catches: temporaries of a side stream that are dropped while it still uses them,
    buffers allocated on one stream and replaced on another. Does not promise that memory
    is given back at all.
    """
    yield from _of_family(judgement, "freed_in_use")


@Property(
    needs=Needs.RUN,
    order=95,
    condition=_WHERE_RECORDED,
    example="a `wait()` that is forgotten",
    is_of_scenarios=False,  # they have a property for each part of a step
)
def streams_order_shared_memory(traced: Traced) -> Iterator[Violation]:
    """Two uses of the same bytes, one of which writes, run in one order.

    For all ranks: streams, events, waits for collectives and waits of the host order each
    write of memory with all other uses of it.

    Catches: a `wait()` that is forgotten or comes late, a stream that does not wait for
    another one. Says nothing of memory of the host, or of other processes.
    """
    yield from _of_lines(traced, Race, "race")


def _of_lines(traced: Traced, kind: type[Unordered], cause: str) -> Iterator[Violation]:
    """Yield one finding for each pair of lines, or for a line and the pool of the memory.

    Ranks that run one program share lines.
    """
    by_lines = dict[object, list[Disorder]]()
    for disorder in traced.disorders:
        if isinstance(shown := disorder.found[0], kind):
            second = (
                shown.second.source if isinstance(shown, Race) else shown.freed.stream
            )
            lines = uses_of(shown)[0].source, second
            by_lines.setdefault(lines, []).append(disorder)
    for disorder, *others in by_lines.values():
        shown = disorder.found[0]
        pairs = [pair for each in (disorder, *others) for pair in each.found]
        trace = traced.run.ranks[shown.rank].trace
        yield Violation(
            property="",
            cause=cause,
            summary=summary(shown, disorder, ()),
            ranks=tuple(sorted({pair.rank for pair in pairs})),
            evidence=evidence(shown, disorder, (), trace),
        )


def unordered_work(judgement: Judgement, cause: str) -> Iterator[Unordered]:
    """Yield the races and early frees of a cause; the first one is the violation's."""
    for disorder in judgement.disorders:
        if _cause(judgement, disorder.found[0]) == cause:
            yield from disorder.found


def _of_family(judgement: Judgement, *causes: str) -> Iterator[Violation]:
    for disorder in judgement.disorders:
        cause = _cause(judgement, disorder.found[0])
        if cause in causes:
            yield from _findings(judgement, disorder, cause)


def _cause(judgement: Judgement, found: Unordered) -> str:
    if isinstance(found, EarlyFree):
        return "freed_in_use"
    first, second = found.first, found.second
    if second.moment.phase == "zero_grad":
        return "zeroed_in_flight"
    if first.moment.phase == "zero_grad":
        return "used_before_zeroed"
    trace = judgement.run.ranks[found.rank].trace
    turn = last_turn(trace, found.second_index)
    is_unbound = turn is not None and turn.moment.phase == "after_unbind"
    if is_unbound or isinstance(turn, SubjectReturn):
        return "read_before_reduced"  # by the training program
    first_reduces = isinstance(first, CollectiveLaunch)
    if isinstance(second, CollectiveLaunch):
        return "collectives_overlap" if first_reduces else "reduced_before_accumulated"
    # A tensor hook sends the memory to which autograd adds the gradient then.
    is_in_hook = isinstance(first, CollectiveLaunch) and first.in_tensor_hook
    is_added = second.source == NoLine.AUTOGRAD and second.moment == first.moment
    if is_in_hook and is_added:
        return "hook_too_early"
    if refill_in_flight(judgement, found) is not None:
        return BUFFER_SHARED
    # The first use may also be a part of a reduction, such as a copy of its result.
    if first_reduces or any(_reductions_before(trace, found, found.first_index)):
        return "touched_in_flight"
    return "accumulated_unordered"


def _reductions_before(
    trace: list[TraceRecord], race: Race, index: int
) -> Iterator[CollectiveLaunch]:
    """Yield collectives of a step on the memory of a race, before a use of that step."""
    step = trace[index].moment.step
    for launch in launches_of(trace[:index]):
        touched = (*launch.reads, *launch.writes)
        if launch.moment.step == step and overlap(touched, [race.region]):
            yield launch


def _findings(
    judgement: Judgement, disorder: Disorder, cause: str
) -> Iterator[Violation]:
    first = disorder.found[0]
    left_over = _left_over(judgement, first)
    shows = _pair(first) | _late_line(first) | left_over
    # A stream that waits for another one orders all that it runs later, defects of their own
    # included. So a remedy carries the pairs whose second use is on a stream that it lets not wait.
    edges = disorder.remedy.edges if disorder.remedy else ()
    waiting = {stream for edge in edges for stream in streams_of(edge)[:1]}
    for found in disorder.found:
        if isinstance(found, Race) and found.second.stream not in waiting:
            shows |= _pair(found, is_carried=True)
    by_place = dict[tuple[int, tuple[str, ...]], Unordered]()
    for found in disorder.found:
        by_place.setdefault((found.rank, _parameters(judgement, found)), found)
    for (rank, parameters), found in by_place.items():
        explained_by = _pair(found) | left_over | _early(judgement, found)
        explained_by |= _incomplete(judgement, found)
        # Beside another disorder, which has another remedy, a pair is no part of that disorder.
        if len(judgement.disorders) == 1:
            explained_by |= _pair(found, is_carried=True)
        if cause == FALLBACK:
            explained_by |= _late_line(found)
        trace = judgement.run.ranks[rank].trace
        shown = evidence(found, disorder, parameters, trace)
        words = summary(found, disorder, parameters)
        if cause in _NO_WAIT_MENDS:
            shown = replace(shown, remedy=None)
        if isinstance(found, Race) and (refill := refill_in_flight(judgement, found)):
            shown = replace(shown, named=refill.lines)
            words = f"rank {rank}: {refill.words()}, which may still use it"
        yield finding(cause, words, rank, parameters, shown, shows, explained_by)


def _early(judgement: Judgement, found: Unordered) -> Signs:
    """Return the sign of a reduction before the last micro-batch, from the line of this one.

    A later reduction of the step finds the buffers and the handles of that one.
    """
    uses = uses_of(found)
    sources = {use.source for use in uses if isinstance(use, CollectiveLaunch)}
    return frozenset(
        Early(launch.source)
        for launch in early_launches(judgement, found.rank)
        if launch.source in sources and launch.moment.step == uses[-1].moment.step
    )


def _incomplete(judgement: Judgement, found: Unordered) -> Signs:
    """Return the signs of reductions to whose memory autograd adds later in the same step."""
    if isinstance(found, EarlyFree):
        return frozenset()
    trace = judgement.run.ranks[found.rank].trace
    uses = (found.first_index, found.first), (found.second_index, found.second)
    return frozenset(
        Incomplete(launch.source)
        for index, use in uses
        if use.source == NoLine.AUTOGRAD
        for launch in _reductions_before(trace, found, index)
    )


def _left_over(judgement: Judgement, found: Unordered) -> Signs:
    """Return the sign of work without an order in a step that is like right ones alone.

    Work of two steps lacks an order whatever the second step found left over.
    """
    steps = {use.moment.step for use in uses_of(found)}
    wrong = (uses_of(each.found[0])[-1].moment.step for each in judgement.disorders)
    if len(steps) == 1 and max(steps) <= min(wrong):
        return after_like_step(judgement.scenario, max(steps))
    return frozenset()


def _pair(found: Unordered, *, is_carried: bool = False) -> Signs:
    """Return the sign of a pair, where one line at least is of the subject."""
    if isinstance(found, EarlyFree):
        return frozenset({Pair(found.use.source, None, is_carried)})
    lines = found.first.source, found.second.source
    return frozenset({Pair(*lines, is_carried)} if lines_among(lines) else ())


def _late_line(found: Unordered) -> Signs:
    """Return the sign of a line of the subject that does not wait, whatever it is for."""
    if isinstance(found, EarlyFree) or not isinstance(found.second.source, SourceLine):
        return frozenset()
    return frozenset({Unawaited(found.second.source, found.second.stream)})


def _parameters(judgement: Judgement, found: Unordered) -> tuple[str, ...]:
    """Name the parameters of a pair, by the collectives that use the same memory."""
    uses = uses_of(found)
    trace = judgement.run.ranks[found.rank].trace
    memory = [region for use in uses for region in (*use.reads, *use.writes)]
    touching = (e for e in launches_of(trace) if overlap((*e.reads, *e.writes), memory))
    named = (e.parameters for e in launches_of(uses) if e.parameters)
    return next(chain(named, (each.parameters for each in touching)), ())
