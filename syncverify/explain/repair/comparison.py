"""Compare the cost of a subject before and after a change of its source.

Note [A fix costs no more]
    In a scenario that was right before, every number is held against its own former value. A
    scenario that was wrong before says less: launches may be missing, doubled or too early.
    There the launches are compared for equal bytes, and with the number that full buckets need.
    Reductions of single parameters are accepted from a subject that sent nothing else before.
    The overlap is then a share: of the operators after an early launch, of the bytes
    that are launched early. A value that is set back for the next step leaves the first step as
    it was, and later ones begin like it: scenarios that were right before are enough.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from syncverify.explain.repair.cost import Cost
from syncverify.judge.violation import Identity
from syncverify.scenario.layout import local_bytes, reduce_axes
from syncverify.scenario.scenario import Scenario

_MIN_COMPARED = 3
# Counters, lists of ranks and gradients of a few elements are no cost: a copy of large gradients
# takes more.
_SPARE_BYTES = 64  # of each rank


class _Bucket(NamedTuple):
    """Gradients of a kind that are reduced together, or one of them."""

    kind: tuple[object, ...]
    num_axes: int  # over which it is reduced
    num_bytes: int
    full_at: float  # share of backward that is over when its last gradient comes


@dataclass(frozen=True, slots=True)
class Needs:
    """The least reductions that a scenario needs, summed over all ranks and steps."""

    of_parameters: int  # where each parameter goes alone
    of_buckets: int  # where buckets are filled up to the cap, one after the other
    num_bytes: int
    # Bytes of full buckets, which need not wait for the end of backward; of each kind of
    # parameters, up to the cap may stay for the last bucket.
    early_bytes: int
    # Mean share of backward that is over when a bucket is full, by bytes.
    full_at: float = 1.0
    most_axes: int = 1  # over which one gradient is reduced

    @classmethod
    def of(cls, scenario: Scenario) -> Needs:
        """Return the needs of a scenario whose parameters are all used."""
        parameters = early_bytes = 0
        buckets = list[_Bucket]()
        for rank in range(scenario.mesh.num_ranks):
            gradients = [*_gradients(scenario, rank)]
            parameters += sum(each.num_axes for each in gradients)
            total = Counter[tuple[object, int]]()
            for each in gradients:
                total[each.kind, each.num_axes] += each.num_bytes
            for (_, axes), size in total.items():
                early_bytes += axes * max(0, size - scenario.bucket_cap_bytes)
            buckets += _filled(gradients, scenario.bucket_cap_bytes)
        num_bytes = sum(each.num_axes * each.num_bytes for each in buckets)
        waited = sum(each.num_axes * each.num_bytes * each.full_at for each in buckets)
        steps = scenario.num_steps
        return cls(
            of_parameters=parameters * steps,
            of_buckets=sum(each.num_axes for each in buckets) * steps,
            num_bytes=num_bytes * steps,
            early_bytes=early_bytes * steps,
            full_at=waited / num_bytes if num_bytes else 1.0,
            most_axes=max((each.num_axes for each in buckets), default=1),
        )


def _gradients(scenario: Scenario, rank: int) -> Iterator[_Bucket]:
    """Yield the reduced gradients of a rank, from the last parameter to the first."""
    trained = [spec for spec in reversed(scenario.parameters) if spec.requires_grad]
    for position, spec in enumerate(trained, start=1):
        axes = len(reduce_axes(scenario.mesh, spec))
        if axes:
            kind = spec.group, spec.effective_grad_dtype, spec.placements, spec.on_mesh
            size = local_bytes(scenario.mesh, spec, rank)
            yield _Bucket(kind, axes, size, position / len(trained))


def _filled(gradients: Iterable[_Bucket], cap: int) -> Iterator[_Bucket]:
    filling = dict[object, _Bucket]()
    for each in gradients:
        known = filling.get(each.kind)
        if known is not None and known.num_bytes + each.num_bytes > cap:
            yield known
            known = None
        filled = known.num_bytes if known else 0
        filling[each.kind] = each._replace(num_bytes=filled + each.num_bytes)
    yield from filling.values()


@dataclass(frozen=True, slots=True)
class Measured:
    """A play of a scenario, which both the judge and the measure of costs look at."""

    scenario: Scenario
    identities: set[Identity] | None  # violations; None if the change cannot be made
    reaches_end: bool
    cost: Cost

    @property
    def is_right(self) -> bool:
        """Tell whether the scenario shows no violation."""
        return self.identities == set()

    @property
    def needs(self) -> Needs:
        """Return what the scenario needs."""
        return Needs.of(self.scenario)

    @property
    def spare_bytes(self) -> int:
        """Return the memory that may come on top."""
        return self.scenario.mesh.num_ranks * _SPARE_BYTES

    @property
    def reduces_a_step(self) -> bool:
        """Tell whether the bytes of one step are reduced; a later one may raise."""
        sent = self.cost.reduced_bytes
        is_whole = sent * self.scenario.num_steps >= self.needs.num_bytes
        return bool(sent) and (self.reaches_end or is_whole)

    def goes_alone(self, count: int) -> bool:
        """Tell whether each parameter goes alone, if `count` launches took the bytes that were sent."""
        sent, needs = self.cost.reduced_bytes, self.needs
        return math.ceil(count * needs.num_bytes / sent) >= needs.of_parameters


class Style(NamedTuple):
    """How a subject sends: each parameter alone, or several together; None if it is unknown."""

    launches_alone: bool | None  # each reduction has one parameter
    bursts_alone: bool | None  # each is launched for itself

    @classmethod
    def of(cls, before: Iterable[Measured]) -> Style:
        """Tell the style from scenarios whose cap holds several parameters."""
        steps = (each for each in before if each.reduces_a_step)
        telling = [e for e in steps if e.needs.of_buckets < e.needs.of_parameters]
        if not telling:
            return cls(None, None)
        return cls(
            all(each.goes_alone(each.cost.reductions) for each in telling),
            all(each.goes_alone(each.cost.bursts) for each in telling),
        )


def regression(before: Sequence[Measured], after: Iterable[Cost]) -> str | None:
    """Name what gets worse by a change, or that too few scenarios can be compared; None if nothing.

    The costs are those of the same scenarios; none is played after one that is worse.
    """
    style = Style.of(before)
    for measured, cost in zip(before, after, strict=True):
        if measured.is_right:
            worse: Iterable[str] = worse_than_right(measured, cost)
        elif measured.reaches_end:
            worse = _worse_than_wrong(measured, cost, style)
        else:  # compared with what is needed
            most = _accepted(measured.needs, alone=style.launches_alone is not False)
            is_more = cost.reductions > max(measured.cost.reductions, most)
            worse = ["more launches than the program needs"] if is_more else []
        for words in worse:
            return words
    several = [m for m in before if m.scenario.mesh.num_ranks > 1 and m.needs.num_bytes]
    return "too few scenarios to compare" if len(several) < _MIN_COMPARED else None


def worse_than_right(measured: Measured, after: Cost) -> list[str]:
    """Name what gets worse by a change of a scenario that was right before."""
    before = measured.cost
    worse = {
        "more launches": after.launches > before.launches,
        "launches that were together come one by one": after.bursts > before.bursts,
        "more bytes are reduced": after.reduced_bytes > before.reduced_bytes,
        "launches come after backward": after.early_bytes < before.early_bytes,
        "less runs beside the reductions": after.beside < before.beside,
        "more memory": after.peak_bytes > before.peak_bytes + measured.spare_bytes,
    }
    return [words for words, is_so in worse.items() if is_so]


def _worse_than_wrong(measured: Measured, after: Cost, style: Style) -> Iterator[str]:
    before, needs = measured.cost, measured.needs
    most = _accepted(needs, alone=style.launches_alone)
    if after.reductions > max(most, _at_the_rate(before.reductions, before, after)):
        yield "more launches than the bytes took before"
    most = _accepted(needs, alone=style.bursts_alone)
    if after.bursts > max(most, _at_the_rate(before.bursts, before, after)):
        yield "launches come one by one"
    surplus = max(0, before.reduced_bytes - needs.num_bytes)
    if after.early_bytes < min(before.early_bytes - surplus, needs.early_bytes):
        yield "launches come after backward"
    # The reductions of one buffer over several axes come one after the other.
    least = min(before.overlap, 1 / needs.most_axes)
    if before.followed and after.followed and after.overlap < least:
        yield "less runs beside the reductions"
    is_late = after.delay > max(before.delay, _latest(measured, after))
    if is_late and not _fills_launches(before, after):
        yield "launches come late in backward"
    missing = max(0, needs.num_bytes - before.reduced_bytes)
    if after.peak_bytes > before.peak_bytes + missing + measured.spare_bytes:
        yield "more memory"


def _fills_launches(before: Cost, after: Cost) -> bool:
    """Tell whether the same launches only have more bytes, which move the mean share."""
    added = after.early_bytes - before.early_bytes
    is_same = (before.launches, before.bursts) == (after.launches, after.bursts)
    return is_same and after.waited <= before.waited + added


def _at_the_rate(count: int, before: Cost, after: Cost) -> int:
    """Return the launches that the bytes take with a change, if `count` took those before it."""
    if (
        not before.reduced_bytes
    ):  # parts were rounded down to nothing, and may get bytes
        return count
    return math.ceil(count * after.reduced_bytes / before.reduced_bytes)


def _accepted(needs: Needs, *, alone: bool | None) -> int:
    return needs.of_parameters if alone else needs.of_buckets


def _latest(measured: Measured, after: Cost) -> float:
    """Return the mean share of backward that is over when buckets are launched in turn.

    One bucket of k is launched when its share of the backward is over; one may come later.
    Buckets of several sizes, or over several axes, are launched when each is full, and half of
    a parameter later.
    """
    scenario, needs = measured.scenario, measured.needs
    turns = scenario.mesh.num_ranks * scenario.num_steps
    each = max(1, after.reductions // turns)
    in_turn = (each + 3) / (2 * each)
    if after.reductions > needs.of_buckets:
        return in_turn
    num_trained = sum(spec.requires_grad for spec in scenario.parameters) or 1
    return max(in_turn, needs.full_at + 0.5 / num_trained)
