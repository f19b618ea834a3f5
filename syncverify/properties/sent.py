"""Whose gradients a launch sends, as its values tell.

Note [Names by value]
    A gradient that was copied before it is sent has no name in a launch. But contributions
    are whole numbers that differ between parameters, ranks, steps and micro-batches, so
    what is sent as it is, or divided for a mean, can be recognized. What was scaled
    otherwise, cast or reordered before cannot: a launch is known only if all that it sends is recognized, but for zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import torch

from syncverify import agenda
from syncverify.layout import ranks_along, reduce_axes
from syncverify.oracle import Reference, trainable
from syncverify.scenario import ParameterSpec
from syncverify.slots import ParameterSlot
from syncverify.trace import CollectiveLaunch


def elements(launch: CollectiveLaunch) -> torch.Tensor | None:
    """Return what a launch sends, in float64 and one dim; None where it is not known."""
    if len(launch.contents) != len(launch.regions):
        return None
    sent = bytearray(b"".join(launch.contents))
    if not sent:
        return torch.zeros(0, dtype=torch.float64)
    return torch.frombuffer(sent, dtype=getattr(torch, launch.dtype)).double()


def senders(
    reference: Reference, rank: int, launch: CollectiveLaunch
) -> tuple[str, ...] | None:
    """Name the parameters whose gradients a rank sends; see Note [Names by value].

    Args:
        reference: Of the run.
        rank: Who sends.
        launch: What.

    Returns:
        Names; None where something is sent that is not recognized.
    """
    if launch.parameters:
        return launch.parameters
    sent = elements(launch)
    if sent is None:
        return None
    found, is_unknown = list[str](), sent != 0
    for name, start, end in _recognized(reference, rank, launch, sent):
        found.append(name)
        is_unknown[start:end] = False
    return None if is_unknown.any() else tuple(dict.fromkeys(found))


def true_slots(
    reference: Reference, rank: int, launch: CollectiveLaunch
) -> tuple[ParameterSlot, ...]:
    """Return the slots of a launch in which gradients of their own parameters may lie.

    `.grad` may be left in a staging buffer that the gradients of others pass through: where
    values tell that all of a slot is theirs, it is no slot any more.

    Args:
        reference: Of the run.
        rank: Who sends.
        launch: What.

    Returns:
        Slots of the launch, all of them where its values are not known.
    """
    sent = elements(launch)
    if sent is None or not launch.slots:
        return launch.slots
    found = [*_recognized(reference, rank, launch, sent)]
    width = getattr(torch, launch.dtype).itemsize
    return tuple(
        slot
        for slot in launch.slots
        if not _is_of_others(slot, _indices(slot, width, len(sent)), found)
    )


def sends(
    reference: Reference,
    rank: int,
    launch: CollectiveLaunch,
    gradient: tuple[str, torch.Tensor],
) -> bool:
    """Tell whether a launch sends a gradient of these very values.

    Args:
        reference: Of the run.
        rank: Who sends.
        launch: What.
        gradient: Name of its parameter, and its values, one behind the other.

    Returns:
        Whether they lie where the gradient does; where that is not known, whether they are
        among values that are all recognized, see Note [Names by value].
    """
    sent, (name, values) = elements(launch), gradient
    if sent is None or name not in (senders(reference, rank, launch) or ()):
        return False
    if not launch.parameters:
        return any(_places(sent, [values]))
    width = getattr(torch, launch.dtype).itemsize
    return any(
        torch.equal(
            sent[slot.offset_bytes // width : slot.end_byte // width],
            values.reshape(-1),
        )
        for slot in launch.slots
        if slot.parameter == name and slot.offset_bytes >= 0
    )


def _indices(slot: ParameterSlot, width_bytes: int, sent_numel: int) -> range:
    """Return which of the elements that are sent lie in a slot."""
    start = max(0, slot.offset_bytes // width_bytes)
    return range(start, min(sent_numel, slot.end_byte // width_bytes))


def _is_of_others(
    slot: ParameterSlot, indices: range, found: Iterable[tuple[str, int, int]]
) -> bool:
    covered = set[int]()
    for name, start, end in found:
        part = {*range(start, end)} & {*indices}
        if part and name == slot.parameter:
            return False
        covered |= part
    return len(covered) == len(indices) > 0


def _recognized(
    reference: Reference, rank: int, launch: CollectiveLaunch, sent: torch.Tensor
) -> Iterator[tuple[str, int, int]]:
    """Yield whose gradients are among values, where each begins, and one past its end."""
    for spec in trainable(reference.scenario):
        for place in _places(sent, _forms(reference, spec, rank, launch)):
            yield spec.name, *place


def _forms(
    reference: Reference, spec: ParameterSpec, rank: int, launch: CollectiveLaunch
) -> Iterator[torch.Tensor]:
    """Yield what a gradient may be by then: reduced over no axis yet, over some, or all.

    A mean may be divided before.
    """
    mesh, moment = reference.scenario.mesh, launch.moment
    count = agenda.num_backwards(reference.scenario, moment.step)
    if moment.micro_batch is not None:
        count = moment.micro_batch + 1
    axes = reduce_axes(mesh, spec)
    for some in _subsets(axes):
        ranks = ranks_along(mesh, some, rank)
        for first in sorted({0, max(0, count - 1)}):
            parts = [
                reference.local(spec, r, moment.step, range(first, count))
                for r in ranks
            ]
            yield (whole := torch.stack(parts).sum(dim=0))
            if reference.capabilities.reduction == "mean":
                yield whole / len(ranks_along(mesh, axes, rank))


def _subsets(axes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(axes) + 1):
        yield from itertools.combinations(axes, size)


def _places(
    sent: torch.Tensor, parts: Iterable[torch.Tensor]
) -> Iterator[tuple[int, int]]:
    """Find values among others; zeros stand for too much to be recognized."""
    for part in parts:
        flat = part.reshape(-1)
        if len(flat) and flat.all():
            for start in (sent == flat[0]).nonzero().reshape(-1).tolist():
                end = start + len(flat)
                if torch.equal(sent[start:end], flat):
                    yield start, end
