"""One buffer for several buckets: a later one is packed before an earlier one is copied back.

Note [Needed until it is copied back]
    A bucket that is sent from a buffer of its own needs that buffer until its sums are copied
    back. A buffer that several buckets share is free only then. A wait before the next bucket is
    packed orders the work, and the sums of the earlier bucket are lost. So a bucket shares its
    buffer if another launch of the step sends other gradients from that memory, and the line that
    packs them runs before anything copied the earlier sums. If they were copied, in the order of
    the host, the buffer is used in turns, and a wait is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeGuard

from syncverify.judge.cause import VAGUE_CAUSES, Cause
from syncverify.judge.ordering.races import Race
from syncverify.judge.properties.gradient_facts import GradientFacts, where
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.sent import senders
from syncverify.judge.reference import Reference
from syncverify.judge.traced import launches_of
from syncverify.plain_text import first_of
from syncverify.trace.records import Access, CollectiveLaunch, TraceRecord
from syncverify.trace.regions import MemoryRegion, overlap
from syncverify.trace.source_lines import Origin, SourceLine

BUFFER_SHARED: Final = "buffer_shared"
_NUM_NAMED: Final = 3


class Refill(NamedTuple):
    """A bucket that is packed into the memory of an earlier one.

    Attributes:
        launch: Launch of the earlier bucket.
        write: Work that writes into its memory.
        names: Names of the parameters of the later bucket.
    """

    launch: CollectiveLaunch
    write: Access
    names: tuple[str, ...]

    @property
    def lines(self) -> tuple[Origin, ...]:
        """Return the line that writes, and the line of the launch."""
        return self.write.source, self.launch.source

    def words(self) -> str:
        """Say which line writes, and which launch needs the memory."""
        return (
            f"{self.write.operator} at {self.write.source} packs "
            f"{first_of([*map(repr, self.names)], _NUM_NAMED)} into the memory of "
            f"{self.launch.operation} {where(self.launch)}"
        )


def refill_in_flight(judgement: Judgement, race: Race) -> Refill | None:
    """Return the refill behind a race: its memory is that of an earlier bucket and a later one."""
    trace, step = judgement.run.ranks[race.rank].trace, race.second.moment.step
    until = trace[: race.second_index + 1]
    for launch in launches_of(until):
        if launch.moment.step == step and overlap(_memory(launch), [race.region]):
            found = _refill(judgement.reference, race.rank, launch, trace)
            if found is not None and any(each is found.write for each in until):
                return found
    return None


def refilled(facts: GradientFacts) -> Cause | None:
    """Find a refill of the gradient's bucket before its sum was copied back."""
    expected = facts.expected
    if facts.kind not in {"misplaced", *VAGUE_CAUSES}:
        return None
    for launch in reversed(facts.launches):
        names = senders(expected.reference, expected.rank, launch) or ()
        if launch.reduces and expected.spec.name in names:
            found = _refill(expected.reference, expected.rank, launch, facts.trace)
            if found is None:
                return None
            text = f"{found.words()}, before its sum is copied back"
            return Cause("buffer_shared", text, lines=found.lines)
    return None


def _refill(
    reference: Reference,
    rank: int,
    launch: CollectiveLaunch,
    trace: Sequence[TraceRecord],
) -> Refill | None:
    """Return the first write for another bucket into the memory of a launch, if none copied it."""
    own = {*(senders(reference, rank, launch) or ())}
    after = itertools.dropwhile(lambda record: record is not launch, trace)
    write: Access | None = None
    for record in itertools.islice(after, 1, None):
        if record.moment.step != launch.moment.step:
            return None
        if write is None:
            if _is_copy(record, launch):
                return None
            write = record if _is_write(record, launch) else None
        elif isinstance(record, CollectiveLaunch) and overlap(
            record.regions, _memory(launch)
        ):
            names = senders(reference, rank, record) or ()
            is_other = own and names and own.isdisjoint(names)
            return Refill(launch, write, names) if is_other else None
    return None


def _is_copy(record: TraceRecord, launch: CollectiveLaunch) -> bool:
    """Tell whether a record reads the result of a launch, and leaves its memory as it is."""
    return (
        isinstance(record, Access)
        and overlap(record.reads, launch.written)
        and not overlap(record.writes, launch.written)
    )


def _is_write(record: TraceRecord, launch: CollectiveLaunch) -> TypeGuard[Access]:
    """Tell whether a line of the subject writes other values into the memory of a launch."""
    return (
        isinstance(record, Access)
        and isinstance(record.source, SourceLine)
        and overlap(record.writes, _memory(launch))
        and not overlap(record.reads, _memory(launch))
    )


def _memory(launch: CollectiveLaunch) -> tuple[MemoryRegion, ...]:
    return (*launch.regions, *launch.written)
