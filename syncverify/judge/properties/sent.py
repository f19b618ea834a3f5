"""The parameters whose gradients a launch sends, by the values that it sends.

Note [Names by value]
    A gradient that is copied before it is sent has no name in a launch. But contributions
    are whole numbers that differ between parameters, ranks, steps and micro-batches. So a
    gradient is recognized if it is sent unchanged, or divided for a mean, in the dtype of the
    launch. It is not recognized if it was scaled otherwise or reordered. A launch is known only
    if all of its values, except for zeros, are recognized. A number inside of a longer gradient
    may equal a gradient of one element by chance, so the longer one alone is named there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from itertools import chain, combinations

import torch

from syncverify.judge.decoding import same_values
from syncverify.judge.reference import GradientSlice, Reference
from syncverify.judge.traced import launches_of
from syncverify.playing.program.model import start_value
from syncverify.scenario import step_plan
from syncverify.scenario.layout import local_shape, ranks_along, reduce_axes
from syncverify.scenario.other_meshes import mesh_of
from syncverify.scenario.specs import ParameterSpec
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Run
from syncverify.trace.slots import ParameterSlot

# Factors are quotients of whole numbers: equal ones agree in more digits than these.
_SIX_DIGITS = 1e-6
# A cut gradient is named by so many significant bits: one element of float32, two of bfloat16.
_BITS_OF_A_CUT = 16


def elements(launch: CollectiveLaunch) -> torch.Tensor | None:
    """Return the values sent: float64, shape (numel,); None where they are not known."""
    if len(launch.contents) != len(launch.regions):
        return None
    sent = bytearray(b"".join(launch.contents))
    if not sent:
        return torch.zeros(0, dtype=torch.float64)
    return torch.frombuffer(sent, dtype=getattr(torch, launch.dtype)).double()


def senders(
    reference: Reference, rank: int, launch: CollectiveLaunch
) -> tuple[str, ...] | None:
    """Name the parameters whose gradients a rank sends; None if some value is unknown."""
    if launch.parameters or not launch.dtype:  # a barrier sends nothing
        return launch.parameters
    key = ("gradients", *_key(rank, launch))
    if key not in reference.names:
        names: tuple[str, ...] | None = None
        if (sent := elements(launch)) is not None:
            found, is_unknown = _found_among(reference, rank, launch, sent)
            if not found and sent_parameters(reference, rank, launch):
                names = ()
            elif not is_unknown.any():
                names = tuple({name: None for name, *_ in found})
        reference.names[key] = names
    return reference.names[key]


def _key(rank: int, launch: CollectiveLaunch) -> tuple[Hashable, ...]:
    """Return all of a launch that decides what its values are recognized as."""
    return rank, launch.moment, launch.dtype, len(launch.regions), launch.contents


def senders_of_cut(
    reference: Reference, rank: int, launch: CollectiveLaunch
) -> tuple[str, ...] | None:
    """Return the parameters whose gradients a rank sends; None if some value is unknown.

    The last gradient may be cut at its end, where a bucket is too short for it.
    """
    sent, names = elements(launch), senders(reference, rank, launch)
    if names is not None or sent is None:
        return names
    found, is_unknown = _found_among(reference, rank, launch, sent)
    last, dtype = sent[int(is_unknown.nonzero()[0]) :], getattr(torch, launch.dtype)
    if not dtype.is_floating_point or not last.all():
        return None
    num_bits = 1 - math.log2(torch.finfo(dtype).eps)
    if len(last) * num_bits < _BITS_OF_A_CUT:
        return None
    for spec in reference.scenario.trainable:
        for form in _forms(reference, spec, rank, launch):
            flat = form.to(dtype).double().reshape(-1)
            if len(flat) > len(last) and torch.equal(flat[: len(last)], last):
                return (*dict.fromkeys([*(name for name, *_ in found), spec.name]),)
    return None


def _found_among(
    reference: Reference, rank: int, launch: CollectiveLaunch, sent: torch.Tensor
) -> tuple[list[GradientSlice], torch.Tensor]:
    """Return the gradients among values, each in no longer one, and which values are in none."""
    places = _recognized(reference, rank, launch, sent)
    found = [
        (name, start, end)
        for name, start, end in places
        if not any(
            first <= start and end <= last and last - first > end - start
            for _, first, last in places
        )
    ]
    is_unknown = sent != 0
    for _, start, end in found:
        is_unknown[start:end] = False
    return found, is_unknown


def places_of(
    reference: Reference, rank: int, launch: CollectiveLaunch
) -> set[tuple[str, int]] | None:
    """Return parameter and first element of each gradient sent; None if a value is unknown."""
    width = getattr(torch, launch.dtype).itemsize if launch.dtype else 1
    if launch.slots:
        return {
            (slot.parameter, slot.offset_bytes // width)
            for slot in true_slots(reference, rank, launch)
        }
    sent = elements(launch)
    if sent is None:
        return None
    found, is_unknown = _found_among(reference, rank, launch, sent)
    return None if is_unknown.any() else {(name, start) for name, start, _ in found}


def sent_parameters(
    reference: Reference, rank: int, launch: CollectiveLaunch
) -> tuple[str, ...]:
    """Return the parameters that a rank sends itself, in place of their gradients.

    Values are compared, as training started with them or as updates changed them since.
    A launch of few elements may send other numbers of the same value. No name is returned where
    some value sent is no value of a parameter.
    """
    if launch.parameters:
        return ()
    key = ("parameters", *_key(rank, launch))
    if key not in reference.names:
        sent, found = elements(launch), dict[str, None]()
        if sent is None or not len(sent):
            return ()
        is_unknown = torch.ones(len(sent), dtype=torch.bool)
        for spec in reference.scenario.trainable:
            flat = start_value(reference.scenario, spec, rank).double().reshape(-1)
            for updates in range(launch.moment.step + 1 if len(flat) else 0):
                for start in range(len(sent) - len(flat) + 1):
                    if same_values(sent[start : start + len(flat)], flat + updates):
                        found[spec.name] = None
                        is_unknown[start : start + len(flat)] = False
        reference.names[key] = () if is_unknown.any() else tuple(found)
    return reference.names[key] or ()


def true_slots(
    reference: Reference, rank: int, launch: CollectiveLaunch
) -> tuple[ParameterSlot, ...]:
    """Return the slots of a launch that may hold the gradient of their parameter.

    A subject may leave `.grad` in a staging buffer that gradients of other parameters pass
    through. A slot is dropped where values tell that it holds other gradients only.
    """
    sent = elements(launch)
    if sent is None or not launch.slots:
        return launch.slots
    found = _recognized(reference, rank, launch, sent)
    width = getattr(torch, launch.dtype).itemsize

    def is_of_others(slot: ParameterSlot) -> bool:
        first = max(0, slot.offset_bytes // width)
        indices = {*range(first, min(len(sent), slot.end_byte // width))}
        parts = [(name, {*range(start, end)} & indices) for name, start, end in found]
        is_own = any(part for name, part in parts if name == slot.parameter)
        covered = set[int]().union(*(part for _, part in parts))
        return not is_own and len(covered) == len(indices) > 0

    return tuple(slot for slot in launch.slots if not is_of_others(slot))


def sends(
    reference: Reference,
    rank: int,
    launch: CollectiveLaunch,
    gradient: tuple[str, torch.Tensor],
) -> bool:
    """Return whether a launch sends a gradient: name of the parameter, and values.

    The values are in the slot of the parameter. In a launch without names they are among values
    that are all recognized, see Note [Names by value].
    """
    sent, (name, values) = elements(launch), gradient
    if sent is None or name not in (senders(reference, rank, launch) or ()):
        return False
    if not launch.parameters:
        return any(_occurrences(sent, values))
    width = getattr(torch, launch.dtype).itemsize
    flat = values.reshape(-1)
    return any(
        same_values(sent[slot.offset_bytes // width : slot.end_byte // width], flat)
        for slot in launch.slots
        if slot.parameter == name and slot.offset_bytes >= 0
    )


def may_hold_gradients(
    reference: Reference, run: Run, launch: CollectiveLaunch
) -> bool:
    """Return whether a collective may reduce gradients, and not control numbers alone.

    A gradient is named, or its values occur on every rank, scaled by one factor. Control
    numbers, such as counts or flags, are no multiples of all ranks' gradients. The norm of
    all gradients is one if a single element outweighs all others, and counts as a number.

    Where values are not known, there may be gradients; and where they round, in each collective
    that has room for some gradient.
    """
    if launch.parameters:
        return True
    if reference.rounds:
        specs, mesh = reference.scenario.trainable, reference.scenario.mesh
        sizes = (math.prod(local_shape(mesh, spec, launch.ranks[0])) for spec in specs)
        return launch.numel >= min(sizes)
    met: dict[tuple[str, str], list[list[float]]] = {}
    num_ranks = num_norms = 0
    for rank in launch.ranks:
        issued = launches_of(run.ranks[rank].trace)
        own = next((each for each in issued if each.key == launch.key), None)
        if own is None:
            continue
        sent = elements(own)
        if sent is None or own.parameters:
            return True
        num_ranks += 1
        num_norms += _is_norm(reference, rank, own, sent)
        for key, values in dict(_scaled(reference, rank, own, sent)).items():
            met.setdefault(key, []).append(values)
    if num_norms == num_ranks:
        return False
    # Gradients of few elements may be equal on all ranks, and then tell nothing.
    return any(
        len(each) == num_ranks
        and (num_ranks == 1 or any(values != each[0] for values in each))
        for each in met.values()
    )


def _is_norm(
    reference: Reference, rank: int, launch: CollectiveLaunch, sent: torch.Tensor
) -> bool:
    """Tell whether one number is sent, and it is a norm of all gradients of the rank."""
    if len(sent) != 1:
        return False
    count = (launch.moment.micro_batch or 0) + 1
    step, specs = launch.moment.step, reference.scenario.trainable
    if not any(
        math.prod(local_shape(reference.scenario.mesh, spec, rank)) for spec in specs
    ):
        return False
    norms = [
        torch.cat(
            [reference.local(spec, rank, step, chosen).reshape(-1) for spec in specs]
        ).norm(order)
        for chosen in (range(count), range(count - 1, count))
        for order in (1, 2, math.inf)
    ]
    return bool(torch.isclose(torch.stack(norms), sent, rtol=_SIX_DIGITS, atol=0).any())


def _scaled(
    reference: Reference, rank: int, launch: CollectiveLaunch, sent: torch.Tensor
) -> Iterator[tuple[tuple[str, str], list[float]]]:
    """Yield gradients among values up to a factor: (parameter, factor), and the gradient."""
    mesh = reference.scenario.mesh
    for spec in reference.scenario.trainable:
        if not reduce_axes(mesh, spec):
            continue
        for form in _forms(reference, spec, rank, launch):
            flat = form.reshape(-1)
            if not len(flat) or len(flat) > len(sent) or not flat.all():
                continue
            ratios = sent.unfold(0, len(flat), 1) / flat
            spread = (ratios - ratios[:, :1]).abs().amax(dim=1)
            is_scaled = (ratios[:, 0] != 0) & (
                spread <= _SIX_DIGITS * ratios[:, 0].abs()
            )
            for ratio in ratios[is_scaled, 0].tolist():
                yield (spec.name, f"{ratio:.6g}"), flat.tolist()


def _recognized(
    reference: Reference, rank: int, launch: CollectiveLaunch, sent: torch.Tensor
) -> tuple[GradientSlice, ...]:
    """Return the gradients among the values of a launch; looked for once."""
    key, dtype = _key(rank, launch), getattr(torch, launch.dtype)
    if key not in reference.places:
        # A third of a whole number is rounded to the dtype in which it is sent.
        reference.places[key] = tuple(
            (spec.name, *place)
            for spec in reference.scenario.trainable
            for form in _forms(reference, spec, rank, launch)
            for place in _occurrences(sent, form.to(dtype).double())
        )
    return reference.places[key]


def _forms(
    reference: Reference, spec: ParameterSpec, rank: int, launch: CollectiveLaunch
) -> Iterator[torch.Tensor]:
    """Yield the values that a gradient may have at a launch.

    It is reduced over no axis yet, over some or over all; with all micro-batches or only
    the last; and a mean may be divided already.
    """
    scenario_mesh, moment = reference.scenario.mesh, launch.moment
    count = step_plan.num_micro_batches(reference.scenario, moment.step)
    if moment.micro_batch is not None:
        count = moment.micro_batch + 1
    mesh = mesh_of(scenario_mesh, spec)
    axes = reduce_axes(scenario_mesh, spec)
    sizes = range(len(axes) + 1)
    for some in chain.from_iterable(combinations(axes, size) for size in sizes):
        ranks = ranks_along(mesh, some, rank)
        for first in sorted({0, max(0, count - 1)}):
            chosen = range(first, count)
            parts = [reference.local(spec, r, moment.step, chosen) for r in ranks]
            yield (whole := torch.stack(parts).sum(dim=0))
            if (divisor := reference.divisor(spec, rank)) > 1:
                yield whole / divisor


def _occurrences(sent: torch.Tensor, part: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Yield where values occur among others.

    Parts with a zero, and parts without a finite element, are not recognized: any NaN would
    be all others.
    """
    flat = part.reshape(-1)
    if flat.isfinite().any() and flat.all():
        is_first = (sent == flat[0]) | (sent.isnan() & flat[0].isnan())
        for start in is_first.nonzero().reshape(-1).tolist():
            end = start + len(flat)
            if same_values(sent[start:end], flat):
                yield start, end
