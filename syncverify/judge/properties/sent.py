"""The parameters whose gradients a launch sends, by the values that it sends.

Note [Names by value]
    A gradient that is copied before it is sent has no name in a launch. But contributions
    are whole numbers that differ between parameters, ranks, steps and micro-batches. So a
    gradient is recognized if it is sent unchanged, or divided for a mean, in the dtype of the
    launch. It is not recognized if it was scaled otherwise or reordered. A launch is known only
    if all of its values, except for zeros, are recognized. A number inside of a longer gradient
    may equal a gradient of one element by chance, so the longer one alone is named there.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, islice

import torch

from syncverify.judge.decoding import same_values
from syncverify.judge.reference import Reference
from syncverify.judge.traced import launches_of
from syncverify.playing.program.model import start_value
from syncverify.scenario import step_plan
from syncverify.scenario.layout import local_shape, mesh_of, ranks_along, reduce_axes
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.regions import ParameterSlot
from syncverify.trace.run import Run

# Factors are quotients of whole numbers: equal ones agree in more digits than these.
_SIX_DIGITS = 1e-6
# A gradient among values: its parameter, its first index, one past its last index.
GradientSlice = tuple[str, int, int]
# A cut gradient is named by so many significant bits: one element of float32, two of bfloat16.
_BITS_OF_A_CUT = 16


@dataclass(frozen=True)  # without slots: `cached_property` needs a dictionary
class Sent:
    """What a rank sends by a launch."""

    reference: Reference
    rank: int
    launch: CollectiveLaunch

    @cached_property
    def elements(self) -> torch.Tensor | None:
        """The values sent: float64, shape (numel,); None where they are not known."""
        launch = self.launch
        if len(launch.contents) != len(launch.regions):
            return None
        sent = bytearray(b"".join(launch.contents))
        if not sent:
            return torch.zeros(0, dtype=torch.float64)
        return torch.frombuffer(sent, dtype=self._dtype).double()

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The parameters whose gradients are sent; None if some value is unknown."""
        launch = self.launch
        if launch.parameters or not launch.dtype:  # a barrier sends nothing
            return launch.parameters
        if self.elements is None:
            return None
        if not self._found and self.parameters:
            return ()
        return None if self._is_unknown.any() else self._found_names

    @cached_property
    def names_of_cut(self) -> tuple[str, ...] | None:
        """The parameters whose gradients are sent; None if some value is unknown.

        The last gradient may be cut at its end, where a bucket is too short for it.
        """
        if self.names is not None or self.elements is None:
            return self.names
        last = self.elements[int(self._is_unknown.nonzero()[0]) :]
        if not self._dtype.is_floating_point or not last.all():
            return None
        num_bits = 1 - math.log2(torch.finfo(self._dtype).eps)
        if len(last) * num_bits < _BITS_OF_A_CUT:
            return None
        for name, form in self._forms():
            flat = form.to(self._dtype).double().reshape(-1)
            if len(flat) > len(last) and torch.equal(flat[: len(last)], last):
                return (*dict.fromkeys((*self._found_names, name)),)
        return None

    @cached_property
    def _found(self) -> list[GradientSlice]:
        """The gradients among the values, each in no longer one."""
        found = self._recognized
        return [
            (name, start, end)
            for name, start, end in found
            if not any(
                e[1] <= start and end <= e[2] and e[2] - e[1] > end - start
                for e in found
            )
        ]

    @property
    def _found_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, *_ in self._found))

    @cached_property
    def _is_unknown(self) -> torch.Tensor:
        assert self.elements is not None
        is_unknown = self.elements != 0
        for _, start, end in self._found:
            is_unknown[start:end] = False
        return is_unknown

    @cached_property
    def places(self) -> frozenset[tuple[str, int]] | None:
        """Parameter and first element of each gradient sent; None if a value is unknown."""
        if self.launch.slots:
            width = self._dtype.itemsize
            return frozenset((e.parameter, e.offset_bytes // width) for e in self.slots)
        if self.elements is None or self._is_unknown.any():
            return None
        return frozenset((name, start) for name, start, _ in self._found)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that are sent themselves, in place of their gradients.

        Values are compared, as training started with them or as updates changed them since.
        A launch of few elements may send other numbers of the same value. No name is returned where
        some value sent is no value of a parameter.
        """
        sent, found = self.elements, dict[str, None]()
        if self.launch.parameters or sent is None or not len(sent):
            return ()
        is_unknown = torch.ones(len(sent), dtype=torch.bool)
        for spec in self.reference.scenario.trainable:
            start_of = start_value(self.reference.scenario, spec, self.rank)
            flat = start_of.double().reshape(-1)
            for updates in range(self.launch.moment.step + 1 if len(flat) else 0):
                for start in range(len(sent) - len(flat) + 1):
                    if same_values(sent[start : start + len(flat)], flat + updates):
                        found[spec.name] = None
                        is_unknown[start : start + len(flat)] = False
        return () if is_unknown.any() else tuple(found)

    @cached_property
    def slots(self) -> tuple[ParameterSlot, ...]:
        """The slots of the launch that may hold the gradient of their parameter.

        A subject may leave `.grad` in a staging buffer that gradients of other parameters pass
        through. A slot is dropped where values tell that it holds other gradients only.
        """
        sent, slots = self.elements, self.launch.slots
        if sent is None or not slots:
            return slots
        width = self._dtype.itemsize

        def is_of_others(slot: ParameterSlot) -> bool:
            first, end = max(0, slot.offset_bytes // width), slot.end_byte // width
            indices, covered = {*range(first, min(len(sent), end))}, set[int]()
            for name, start, end in self._recognized:
                part = {*range(start, end)} & indices
                if part and name == slot.parameter:
                    return False
                covered |= part
            return len(covered) == len(indices) > 0

        return tuple(slot for slot in slots if not is_of_others(slot))

    def has(self, name: str, values: torch.Tensor) -> bool:
        """Tell whether a gradient of a parameter is sent with some values.

        The values are in the slot of the parameter. In a launch without names they are among values
        that are all recognized, see Note [Names by value].
        """
        sent = self.elements
        if sent is None or name not in (self.names or ()):
            return False
        if not self.launch.parameters:
            return any(_occurrences(sent, values))
        width, flat = self._dtype.itemsize, values.reshape(-1)
        return any(
            same_values(sent[slot.offset_bytes // width : slot.end_byte // width], flat)
            for slot in self.launch.slots
            if slot.parameter == name and slot.offset_bytes >= 0
        )

    @property
    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.launch.dtype)
        return dtype

    @cached_property
    def _recognized(self) -> tuple[GradientSlice, ...]:
        assert self.elements is not None
        # A third of a whole number is rounded to the dtype in which it is sent.
        return tuple(
            (name, *place)
            for name, form in self._forms()
            for place in _occurrences(self.elements, form.to(self._dtype).double())
        )

    def _forms(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the values that each parameter's gradient may have at the launch, with its name.

        It is reduced over no axis yet, over some or over all; with all micro-batches or only
        the last; and a mean may be divided already.
        """
        reference, moment, rank = self.reference, self.launch.moment, self.rank
        scenario, step = reference.scenario, moment.step
        count = step_plan.num_micro_batches(scenario, step)
        if moment.micro_batch is not None:
            count = moment.micro_batch + 1
        for spec in scenario.trainable:
            mesh, axes = mesh_of(scenario.mesh, spec), reduce_axes(scenario.mesh, spec)
            divisor, sizes = reference.divisor(spec, rank), range(len(axes) + 1)
            for some in chain.from_iterable(combinations(axes, size) for size in sizes):
                ranks = ranks_along(mesh, some, rank)
                for first in sorted({0, max(0, count - 1)}):
                    batches = range(first, count)
                    parts = [reference.local(spec, r, step, batches) for r in ranks]
                    yield spec.name, (whole := torch.stack(parts).sum(dim=0))
                    if divisor > 1:
                        yield spec.name, whole / divisor

    def is_norm(self) -> bool:
        """Tell whether one number is sent, and it is a norm of all gradients of the rank."""
        sent, reference, rank = self.elements, self.reference, self.rank
        specs, mesh = reference.scenario.trainable, reference.scenario.mesh
        if sent is None or len(sent) != 1:
            return False
        if not any(math.prod(local_shape(mesh, spec, rank)) for spec in specs):
            return False
        step, count = self.launch.moment.step, (self.launch.moment.micro_batch or 0) + 1
        norms = [
            torch.cat(
                [reference.local(e, rank, step, chosen).reshape(-1) for e in specs]
            ).norm(order)
            for chosen in (range(count), range(count - 1, count))
            for order in (1, 2, math.inf)
        ]
        near = torch.isclose(torch.stack(norms), sent, rtol=_SIX_DIGITS, atol=0)
        return bool(near.any())

    def scaled(self) -> Iterator[tuple[tuple[str, str], list[float]]]:
        """Yield gradients among values up to a factor: (parameter, factor), and the gradient."""
        sent, scenario = self.elements, self.reference.scenario
        reduced = {e.name for e in scenario.trainable if reduce_axes(scenario.mesh, e)}
        for name, form in self._forms():
            flat = form.reshape(-1)
            if sent is None or not 0 < len(flat) <= len(sent) or not flat.all():
                continue
            ratios = sent.unfold(0, len(flat), 1) / flat
            spread = (ratios - ratios[:, :1]).abs().amax(dim=1)
            is_near = spread <= _SIX_DIGITS * ratios[:, 0].abs()
            for ratio in ratios[(ratios[:, 0] != 0) & is_near, 0].tolist():
                if name in reduced:
                    yield (name, f"{ratio:.6g}"), flat.tolist()


def sent_by(reference: Reference, rank: int, launch: CollectiveLaunch) -> Sent:
    """Return what a rank sends by a launch; values are looked through once."""
    # All of a launch that decides what its values are recognized as.
    values = launch.moment, launch.dtype, len(launch.regions), launch.contents
    key = (rank, *values, launch.parameters, launch.slots)
    found: Sent = reference.sent.setdefault(key, Sent(reference, rank, launch))
    return found


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
    launches = list[Sent]()
    for rank in launch.ranks:
        alike = (e for e in launches_of(run.ranks[rank].trace) if e.key == launch.key)
        launches += [sent_by(reference, rank, own) for own in islice(alike, 1)]
    if any(each.elements is None or each.launch.parameters for each in launches):
        return True
    if all(each.is_norm() for each in launches):
        return False
    met: dict[tuple[str, str], list[list[float]]] = {}
    for each in launches:
        for key, values in dict(each.scaled()).items():
            met.setdefault(key, []).append(values)
    # Gradients of few elements may be equal on all ranks, and then tell nothing.
    return any(
        len(each) == len(launches)
        and (len(launches) == 1 or any(values != each[0] for values in each))
        for each in met.values()
    )


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
