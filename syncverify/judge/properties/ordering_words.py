"""Work without an order, in words: for summaries, evidence and witnesses.

Nothing reads these words back: a finding also carries the race or early free itself.
"""

from collections.abc import Iterator, Sequence

from syncverify.judge.evidence import Disordered, Event
from syncverify.judge.ordering.missing_waits import streams_of
from syncverify.judge.ordering.races import EarlyFree, Race, Unordered
from syncverify.judge.ordering.remedies import Disorder
from syncverify.trace.operations import LENDING
from syncverify.trace.records import (
    HOST,
    CollectiveLaunch,
    Mark,
    MemoryUse,
    StreamCreated,
    StreamWait,
)
from syncverify.trace.run import Trace
from syncverify.trace.source_lines import NoLine, Origin, SourceLine

# Work of the training program, which has no line of the subject.
_BY: dict[Origin, str] = {
    NoLine.AUTOGRAD: "by autograd",
    NoLine.OPTIMIZER: "by the optimizer",
}
_SHOWN_WAITS = 3
_ON_GLOO = ", on gloo, which runs collectives side by side (NCCL does not)"


def uses_of(unordered: Unordered) -> tuple[MemoryUse, ...]:
    """Return the two uses of a race, or the use of memory that is given out again."""
    if isinstance(unordered, Race):
        return unordered.first, unordered.second
    return (unordered.use,)


def first_and_second(unordered: Unordered) -> tuple[str, str]:
    """Describe the work that must come first, and the work that does not wait for it."""
    if isinstance(unordered, Race):
        return _use(unordered.first), _use(unordered.second)
    pool = f"the pool of stream {unordered.freed.stream!r}"
    return _use(unordered.use), f"the next owner of the memory, from {pool}"


def summary(unordered: Unordered, disorder: Disorder, parameters: Sequence[str]) -> str:
    """Return the sentence of a finding; gradients of `parameters` lie in the memory."""
    if isinstance(unordered, Race):
        pair = f"{_short(unordered.first)} before {_short(unordered.second)}"
    else:
        pair = f"{_short(unordered.use)} before its memory is given out again"
    pair += _gradients(parameters) + (_ON_GLOO if disorder.semantics == "host" else "")
    return f"rank {unordered.rank}: nothing orders {pair}"


def evidence(
    unordered: Unordered, disorder: Disorder, parameters: Sequence[str], trace: Trace
) -> Disordered:
    """Return the evidence of a finding; `trace` is that of its rank."""
    first, second = first_and_second(unordered)
    use, *later = uses_of(unordered)
    if isinstance(unordered, Race):
        region = unordered.region
        memory = f"bytes {region.start_byte} to {region.end_byte} of storage {region.storage}"
    else:
        moment = str(unordered.freed.moment)
        freed = f", freed in {moment}" if moment else ""
        memory = f"storage {unordered.freed.storage}{freed}"
    return Disordered(
        rank=unordered.rank,
        events=(Event(first, use), Event(second, *later)),
        memory=f"{memory}{_gradients(parameters)}",
        remedy=str(disorder.remedy or "no single wait orders them"),
        streams=tuple(_origins(unordered, disorder, trace)),
        waits=tuple(_waits_between(unordered, trace)),
        unordered=unordered,
    )


def _waits_between(unordered: Unordered, trace: Trace) -> list[str]:
    """Name the waits that were made in between, and do not order the two uses."""
    if not isinstance(unordered, Race):
        return []
    marks = {each.mark: each for each in trace if isinstance(each, Mark)}
    before = trace[: unordered.first_index]
    early = {each.mark for each in before if isinstance(each, Mark)}
    waits = dict[str, None]()
    for each in trace[unordered.first_index : unordered.second_index]:
        if isinstance(each, StreamWait) and each.stream == unordered.second.stream:
            mark = marks.get(each.mark)
            awaited = mark.stream if mark else "no work"
            words = f"{each.stream} waits for {awaited} at {each.source}"
            if mark and each.mark in early:
                event = f"the event at {mark.source}"
                words += f", but only for what was queued before {event}"
            waits[words] = None
    return [*waits][-_SHOWN_WAITS:]


def _origins(unordered: Unordered, disorder: Disorder, trace: Trace) -> Iterator[str]:
    """Name the line that makes each stream, or the training program."""
    made_at = {e.stream: e.source for e in trace if isinstance(e, StreamCreated)}
    streams = [use.runs_on for use in uses_of(unordered)]
    if isinstance(unordered, EarlyFree):
        streams.append(unordered.freed.stream)
    for edge in disorder.remedy.edges if disorder.remedy else ():
        streams += streams_of(edge)
    for stream in dict.fromkeys(streams):
        if stream in made_at:
            is_line = isinstance(origin := made_at[stream], SourceLine)
            place = f"at {origin}" if is_line else "by the training program"
            yield f"{stream} is made {place}"


def _gradients(parameters: Sequence[str]) -> str:
    return f" (gradients of {', '.join(parameters)})" if parameters else ""


def _use(use: MemoryUse) -> str:
    at = f" ({use.moment})" if use.moment.phase else ""
    if isinstance(use, CollectiveLaunch):
        return f"{use}{at}, running on stream {use.runs_on!r}"
    on_stream = "" if use.runs_on == HOST else f", on stream {use.runs_on!r}"
    return f"{_short(use)}{at}{on_stream}"


def _short(use: MemoryUse) -> str:
    if isinstance(use, CollectiveLaunch):
        return f"{use.operation} at {use.source}"
    if use.source is NoLine.RETURN:
        return str(use.source)
    if use.operator in LENDING:
        view = f"the view that {use.operator} made at {use.source}"
        return f"the read by the host of {view}"
    by = _BY.get(use.source, f"at {use.source}")
    on_host = " on the host" if use.runs_on == HOST else ""
    return f"{use.operator} {by}{on_host}"
