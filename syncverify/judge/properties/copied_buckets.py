"""Buckets that gradients are copied into, and whose sums are copied back.

Note [Two walks of one bucket]
    A bucket that is copied is walked twice: its gradients are copied into it, and its sums are
    copied back. The values that are sent tell where each of them lies. The gradients after
    `wait()` tell from where each of them was read. Two orders of the same parameters are two walks
    that disagree; a wrong offset alone leaves the order as it is. If sizes differ, torch may refuse
    the first copy: then the sizes that its error names are those of two gradients.

Note [Needed until it is copied back]
    A bucket that is sent from a buffer of its own needs that buffer until its sums are copied
    back. A buffer that several buckets share is free only then. A wait before the next bucket is
    packed orders the work, and the sums of the earlier bucket are lost. So a bucket shares its
    buffer if another launch of the step sends other gradients from that memory, and the line that
    packs them runs before anything copied the earlier sums. If they were copied, in the order of
    the host, the buffer is used in turns, and a wait is missing.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard

import torch

from syncverify.judge.causes import VAGUE_CAUSES
from syncverify.judge.ordering.races import Race
from syncverify.judge.properties.gradient_facts import (
    GradientFacts,
    before,
    since,
    where,
)
from syncverify.judge.properties.judgement import Judgement, launches_of_step
from syncverify.judge.properties.sent import sent_by
from syncverify.judge.reference import Reference
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Cause, is_exception
from syncverify.plain_text import first_of
from syncverify.trace.records import Access, CollectiveLaunch, TraceRecord
from syncverify.trace.regions import MemoryRegion, overlap
from syncverify.trace.run import Trace
from syncverify.trace.source_lines import (
    CodeLine,
    NoLine,
    Origin,
    SourceLine,
    lines_among,
)

UNPACKED_OTHERWISE: Final = "unpacked_in_other_order"
BUFFER_SHARED: Final = "buffer_shared"
_OF_WRONG_PLACES: Final = {"misplaced", *VAGUE_CAUSES}


class _Packed(NamedTuple):
    """A bucket of copies."""

    starts: Mapping[str, int]  # first element of each gradient in the bucket, in order
    line: Origin  # copies the last gradient into it; UNKNOWN where work is not recorded

    def words(self) -> str:
        by = f" by {self.line}" if isinstance(self.line, SourceLine) else ""
        return f"bucket is packed in the order {_listed(self.starts)}{by}"


def unpacked_otherwise(facts: GradientFacts) -> Iterator[Cause]:
    """Find a bucket of the gradient that is unpacked in another order."""
    reference, rank = facts.expected.reference, facts.rank
    for launch in facts.launches if facts.kind in _OF_WRONG_PLACES else ():
        packed = _packed(reference, rank, launch, facts.trace)
        if packed is None or facts.name not in packed.starts:
            continue
        names = _unpacked(facts, packed)
        if names is not None and names != tuple(packed.starts):
            reads = _reads(launch, facts.trace)[-1:]
            by = "".join(f" by {line}" for line in reads)
            unpacked = f"unpacked in the order {_listed(names)}{by}"
            text = f"its {packed.words()}, and {unpacked}"
            yield Cause("unpacked_in_other_order", text, lines=(packed.line, *reads))


def refused_order(judgement: Judgement, cause: str) -> Cause | None:
    """Find the bucket that a rank raised an error about, as it unpacked it in another order."""
    fault = judgement.run.fault
    if fault is None or not is_exception(cause) or len(fault.sizes) != 2:
        return None
    rank, last = fault.ranks[0], next(reversed(fault.details), None)
    trace = judgement.run.ranks[rank].trace
    for launch in reversed(launches_of_step(trace, fault.step)):
        packed = _packed(judgement.reference, rank, launch, trace)
        if packed is None or not isinstance(last, CodeLine) or last.line == packed.line:
            continue
        # What is left for the last gradient is its own size in any order, unless it is cut.
        if len(packed.starts) - len(_reads(launch, trace)) < 2:
            continue
        numel = {name: judgement.numel(name, rank) for name in packed.starts}
        found = [[n for n in numel if numel[n] == size] for size in fault.sizes]
        if all(found):
            text = (
                f"the {packed.words()}, and unpacked in another order by {last.line}: the sizes "
                f"are those of {_listed(names[0] for names in found)}"
            )
            return Cause(UNPACKED_OTHERWISE, text, lines=(packed.line, last.line))
    return None


def _listed(names: Iterable[str]) -> str:
    return first_of([*map(repr, names)], 4)


def _packed(
    reference: Reference, rank: int, launch: CollectiveLaunch, trace: Trace
) -> _Packed | None:
    """Return the order in which copies of gradients were sent; None where it is not known."""
    places = None if launch.slots else sent_by(reference, rank, launch).places
    names = [name for name, _ in places or ()]
    if places is None or len({*names}) < max(2, len(names)):
        return None
    earlier = before(launch, trace)
    lines = [each.source for each in earlier if _is_write(each, launch.regions)]
    starts = dict(sorted(places, key=lambda place: place[1]))
    return _Packed(starts, lines[-1] if lines else NoLine.UNKNOWN)


def _unpacked(facts: GradientFacts, packed: _Packed) -> tuple[str, ...] | None:
    """Return the order in which the gradients after `wait()` lie in the sums of a bucket.

    None where a gradient is no part of the bucket, or any of two.
    """
    places, bucket = list[tuple[int, int, str]](), _sums(facts, packed)
    for name in packed.starts:
        gradient = facts.observation.gradients.get(name)
        if gradient is None or not 0 < gradient.numel() <= len(bucket):
            return None
        flat = gradient.double().reshape(-1)
        windows = bucket.to(gradient.dtype).double().unfold(0, len(flat), 1)
        found = (windows == flat).all(dim=1).nonzero().reshape(-1).tolist()
        if len(found) != 1:
            return None
        places.append((found[0], found[0] + len(flat), name))
    pairs = itertools.pairwise(sorted(places))
    is_apart = all(end <= start for (_, end, _), (start, _, _) in pairs)
    return tuple(name for *_, name in sorted(places)) if is_apart else None


def _sums(facts: GradientFacts, packed: _Packed) -> torch.Tensor:
    """Return the right sums in the places of the gradients; float64, shape (numel,)."""
    reference, step = facts.expected.reference, facts.expected.step
    sums = {
        packed.starts[spec.name]: reference.reduced(spec, facts.rank, step).reshape(-1)
        for spec in reference.scenario.trainable
        if spec.name in packed.starts
    }
    size = max(start + each.numel() for start, each in sums.items())
    bucket = torch.zeros(size, dtype=torch.float64)
    for start in sorted(sums):
        bucket[start : start + sums[start].numel()] = sums[start]
    return bucket


def _reads(launch: CollectiveLaunch, trace: Trace) -> tuple[SourceLine, ...]:
    """Return the lines that read the memory of a launch after it, one for each read."""
    later = since(launch, trace)
    return lines_among(e.source for e in later if _is_copy(e, launch.written))


class Refill(NamedTuple):
    """A bucket that is packed into the memory of an earlier one."""

    launch: CollectiveLaunch  # of the earlier bucket
    write: Access  # into its memory
    names: tuple[str, ...]  # of the parameters of the later bucket

    @property
    def lines(self) -> tuple[Origin, ...]:
        """Return the line that writes, and the line of the launch."""
        return self.write.source, self.launch.source

    def words(self) -> str:
        """Say which line writes, and which launch needs the memory."""
        return (
            f"{self.write.operator} at {self.write.source} packs "
            f"{first_of([*map(repr, self.names)], 3)} into the memory of "
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


def refilled(facts: GradientFacts) -> Iterator[Cause]:
    """Find a refill of the gradient's bucket before its sum was copied back."""
    for launch in facts.sent_reductions[-1:] if facts.kind in _OF_WRONG_PLACES else ():
        found = _refill(facts.expected.reference, facts.rank, launch, facts.trace)
        if found is not None:
            text = f"{found.words()}, before its sum is copied back"
            yield Cause("buffer_shared", text, lines=found.lines)


def _refill(
    reference: Reference, rank: int, launch: CollectiveLaunch, trace: Trace
) -> Refill | None:
    """Return the first write for another bucket into the memory of a launch, if none copied it."""
    own = {*(sent_by(reference, rank, launch).names or ())}
    memory, write = _memory(launch), None
    for record in itertools.islice(since(launch, trace), 1, None):
        if record.moment.step != launch.moment.step:
            return None
        if write is None:
            if _is_copy(record, launch.written):
                return None
            write = record if _is_write(record, memory) else None
        elif isinstance(record, CollectiveLaunch) and overlap(record.regions, memory):
            names = sent_by(reference, rank, record).names or ()
            is_other = own and names and own.isdisjoint(names)
            return Refill(launch, write, names) if is_other else None
    return None


def _is_copy(record: TraceRecord, memory: Sequence[MemoryRegion]) -> TypeGuard[Access]:
    """Tell whether work reads memory, and leaves it as it is."""
    return (
        isinstance(record, Access)
        and overlap(record.reads, memory)
        and not overlap(record.writes, memory)
    )


def _is_write(record: TraceRecord, memory: Sequence[MemoryRegion]) -> TypeGuard[Access]:
    """Tell whether a line of the subject writes other values into memory."""
    return (
        isinstance(record, Access)
        and isinstance(record.source, SourceLine)
        and overlap(record.writes, memory)
        and not overlap(record.reads, memory)
    )


def _memory(launch: CollectiveLaunch) -> tuple[MemoryRegion, ...]:
    return (*launch.regions, *launch.written)
