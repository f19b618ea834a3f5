"""Gradients that are packed into a bucket in one order and unpacked in another one.

Note [Two walks of one bucket]
    A bucket that is copied is walked twice: its gradients are copied into it, and its sums are
    copied back. The values that are sent tell where each of them lies. The gradients after
    `wait()` tell from where each of them was read. Two orders of the same parameters are two walks
    that disagree; a wrong offset alone leaves the order as it is. If sizes differ, torch may refuse
    the first copy: then the sizes that its error names are those of two gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from syncverify.judge.cause import VAGUE_CAUSES, Cause, is_exception
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.gradient_facts import GradientFacts
from syncverify.judge.properties.judgement import Judgement, launches_of_step
from syncverify.judge.properties.sent import places_of
from syncverify.judge.reference import Reference
from syncverify.plain_text import first_of
from syncverify.scenario.layout import local_shape
from syncverify.trace.records import Access, CollectiveLaunch, TraceRecord
from syncverify.trace.regions import overlap
from syncverify.trace.source_lines import (
    CodeLine,
    NoLine,
    Origin,
    SourceLine,
    lines_among,
)

UNPACKED_OTHERWISE: Final = "unpacked_in_other_order"
_NUM_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class Packed:
    """A bucket of copies.

    Attributes:
        starts: First element of each gradient in the bucket, in order.
        line: Line that copies the last gradient into it; UNKNOWN where work is not recorded.
    """

    starts: Mapping[str, int]
    line: Origin

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(self.starts)

    @property
    def by(self) -> str:
        """The line in words; "" for no line."""
        return f" by {self.line}" if isinstance(self.line, SourceLine) else ""


def unpacked_otherwise(facts: GradientFacts) -> Cause | None:
    """Find a bucket of the gradient that is unpacked in another order."""
    expected = facts.expected
    if facts.kind not in {"misplaced", *VAGUE_CAUSES}:
        return None
    for launch in facts.launches:
        packed = _packed(expected.reference, expected.rank, launch, facts.trace)
        if packed is None or expected.spec.name not in packed.starts:
            continue
        names = _unpacked(facts, packed)
        if names is not None and names != packed.names:
            line = next(reversed(_reads(launch, facts.trace)), None)
            by = f" by {line}" if line else ""
            text = (
                f"its bucket is packed in the order {_listed(packed.names)}{packed.by}, and "
                f"unpacked in the order {_listed(names)}{by}"
            )
            lines = (packed.line, line) if line else (packed.line,)
            return Cause("unpacked_in_other_order", text, lines=lines)
    return None


def refused_order(judgement: Judgement, cause: str) -> Cause | None:
    """Find the bucket that a rank raised an error about, as it unpacked it in another order."""
    fault = judgement.run.fault
    if fault is None or not is_exception(cause) or len(fault.sizes) != 2:
        return None
    last = next(reversed(fault.details), None)
    trace = judgement.run.ranks[fault.ranks[0]].trace
    for launch in reversed(launches_of_step(trace, fault.step)):
        packed = _packed(judgement.reference, fault.ranks[0], launch, trace)
        if packed is None or not isinstance(last, CodeLine) or last.line == packed.line:
            continue
        # What is left for the last gradient is its own size in any order, unless it is cut.
        if len(packed.names) - len(_reads(launch, trace)) < 2:
            continue
        pair = _of_sizes(judgement, packed.names, fault.sizes)
        if pair is not None:
            text = (
                f"the bucket is packed in the order {_listed(packed.names)}{packed.by}, and "
                f"unpacked in another order by {last.line}: the sizes are those of "
                f"{_listed(pair)}"
            )
            return Cause(
                "unpacked_in_other_order", text, lines=(packed.line, last.line)
            )
    return None


def _of_sizes(
    judgement: Judgement, names: Sequence[str], sizes: Sequence[int]
) -> tuple[str, ...] | None:
    """Name the parameters of two sizes, in elements; None where one size fits none of them."""
    mesh, rank = judgement.scenario.mesh, judgement.run.fault.ranks[0]  # type: ignore[union-attr]
    numel = {
        spec.name: math.prod(local_shape(mesh, spec, rank))
        for spec in judgement.scenario.trainable
        if spec.name in names
    }
    found = [[name for name in names if numel.get(name) == size] for size in sizes]
    return tuple(each[0] for each in found) if all(found) else None


def _listed(names: Sequence[str]) -> str:
    return first_of([*map(repr, names)], _NUM_NAMED)


def _packed(
    reference: Reference,
    rank: int,
    launch: CollectiveLaunch,
    trace: Sequence[TraceRecord],
) -> Packed | None:
    """Return the order in which copies of gradients were sent; None where it is not known."""
    places = None if launch.slots else places_of(reference, rank, launch)
    names = [name for name, _ in places or ()]
    if places is None or len({*names}) < max(2, len(names)):
        return None
    before = itertools.takewhile(lambda record: record is not launch, trace)
    lines = [
        access.source
        for access in _own_work(before)
        if overlap(access.writes, launch.regions)
        and not overlap(access.reads, launch.regions)
    ]
    starts = dict(sorted(places, key=lambda place: place[1]))
    return Packed(starts, lines[-1] if lines else NoLine.UNKNOWN)


def _unpacked(facts: GradientFacts, packed: Packed) -> tuple[str, ...] | None:
    """Return the order in which the gradients after `wait()` lie in the sums of a bucket.

    Returns:
        Names of the parameters; None where a gradient is no part of the bucket, or any of two.
    """
    expected, found, numel = facts.expected, dict[str, int](), dict[str, int]()
    bucket = _sums(expected, packed)
    for name in packed.starts:
        gradient = facts.gradients.get(name)
        flat = None if gradient is None else gradient.double().reshape(-1)
        if gradient is None or flat is None or not len(flat) or len(flat) > len(bucket):
            return None
        windows = bucket.to(gradient.dtype).double().unfold(0, len(flat), 1)
        places = (windows == flat).all(dim=1).nonzero().reshape(-1).tolist()
        if len(places) != 1:
            return None
        found[name], numel[name] = places[0], len(flat)
    names = tuple(sorted(found, key=found.__getitem__))
    ends = [found[name] + numel[name] for name in names[:-1]]
    starts = [found[name] for name in names[1:]]
    is_apart = all(end <= start for end, start in zip(ends, starts, strict=True))
    return names if is_apart else None


def _sums(expected: ExpectedGradient, packed: Packed) -> torch.Tensor:
    """Return the right sums in the places of the gradients; float64, shape (numel,)."""
    specs = {spec.name: spec for spec in expected.reference.scenario.trainable}
    sums = {
        start: expected.reference.reduced(specs[name], expected.rank, expected.step)
        for name, start in packed.starts.items()
    }
    bucket = torch.zeros(max(start + each.numel() for start, each in sums.items()))
    bucket = bucket.double()
    for start, each in sums.items():
        bucket[start : start + each.numel()] = each.reshape(-1)
    return bucket


def _reads(
    launch: CollectiveLaunch, trace: Sequence[TraceRecord]
) -> tuple[SourceLine, ...]:
    """Return the lines that read the memory of a launch after it, one for each read."""
    after = itertools.dropwhile(lambda record: record is not launch, trace)
    return lines_among(
        access.source
        for access in _own_work(after)
        if overlap(access.reads, launch.written)
        and not overlap(access.writes, launch.written)
    )


def _own_work(records: Iterable[TraceRecord]) -> Iterator[Access]:
    """Yield the work of the subject's own lines."""
    for record in records:
        if isinstance(record, Access) and isinstance(record.source, SourceLine):
            yield record
