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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from syncverify.explain.repair.cost import Cost
from syncverify.explain.repair.needs import Needs
from syncverify.scenario.scenario import Scenario

_MIN_COMPARED = 3
# Counters, lists of ranks and gradients of a few elements are no cost: a copy of large gradients
# takes more.
_SPARE_BYTES = 64  # of each rank


@dataclass(frozen=True, slots=True)
class Measured:
    """A scenario, and what the unchanged subject does in it.

    Attributes:
        is_right: Whether it shows no violation.
        cost: Launches, bytes, overlap and memory.
    """

    scenario: Scenario
    is_right: bool
    reaches_end: bool
    cost: Cost

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

    def complete(self, count: int) -> int:
        """Return the launches of all bytes of the scenario, if `count` took those that were sent."""
        sent, needed = self.cost.reduced_bytes, self.needs.num_bytes
        return math.ceil(count * needed / sent) if sent else 0


@dataclass(frozen=True, slots=True)
class Style:
    """How a subject sends: each parameter alone, or several together; None if it is unknown.

    Attributes:
        launches_alone: Whether each reduction has one parameter.
        bursts_alone: Whether each is launched for itself.
    """

    launches_alone: bool | None
    bursts_alone: bool | None

    @classmethod
    def of(cls, before: Iterable[Measured]) -> Style:
        """Tell the style from scenarios whose cap holds several parameters."""
        telling = [
            each
            for each in before
            if each.reduces_a_step and each.needs.of_buckets < each.needs.of_parameters
        ]
        if not telling:
            return cls(None, None)
        return cls(
            all(
                e.complete(e.cost.reductions) >= e.needs.of_parameters for e in telling
            ),
            all(e.complete(e.cost.bursts) >= e.needs.of_parameters for e in telling),
        )


def regression(before: Sequence[Measured], after: Iterable[Cost]) -> str | None:
    """Name what gets worse by a change; None if nothing does.

    Args:
        before: Scenarios with the unchanged subject.
        after: The costs of the same scenarios with the change. None is played after one
            that is worse.

    Returns:
        A few words, also where too few scenarios can be compared.
    """
    style = Style.of(before)
    for measured, cost in zip(before, after, strict=True):
        for words in _worse(measured, cost, style):
            return words
    several = [m for m in before if m.scenario.mesh.num_ranks > 1 and m.needs.num_bytes]
    return "too few scenarios to compare" if len(several) < _MIN_COMPARED else None


def is_unchanged(before: Sequence[Measured], after: Sequence[Cost]) -> bool:
    """Tell whether a change leaves the cost of all scenarios that can be compared."""
    return all(
        measured.cost == cost
        for measured, cost in zip(before, after, strict=True)
        if measured.reaches_end
    )


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


def _worse(measured: Measured, after: Cost, style: Style) -> Iterator[str]:
    if measured.is_right:
        yield from worse_than_right(measured, after)
    elif measured.reaches_end:
        yield from _worse_than_wrong(measured, after, style)
    else:
        yield from _more_than_needed(measured, after, style)


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


def _more_than_needed(measured: Measured, after: Cost, style: Style) -> Iterator[str]:
    """Compare with what is needed: the unchanged subject does not reach the end."""
    needs = measured.needs
    if after.reductions > max(
        measured.cost.reductions,
        _accepted(needs, alone=style.launches_alone is not False),
    ):
        yield "more launches than the program needs"


def _fills_launches(before: Cost, after: Cost) -> bool:
    """Tell whether the same launches only have more bytes, which move the mean share."""
    added = after.early_bytes - before.early_bytes
    is_same = (before.launches, before.bursts) == (after.launches, after.bursts)
    return is_same and after.waited <= before.waited + added


def _at_the_rate(count: int, before: Cost, after: Cost) -> int:
    """Return the launches that the bytes take with a change, if `count` took those before it.

    Launches without a byte, such as of parts that were rounded down to nothing, may get some.
    """
    if not before.reduced_bytes:
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
