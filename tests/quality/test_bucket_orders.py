"""Buckets that are packed in one order and unpacked in another: both lines are named."""

from collections.abc import Sequence

import pytest
import torch
from typing_extensions import override

import syncverify
from syncverify.report.hints import certainty, hint_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from tests.quality.copied_buckets import CopiedBuckets

pytestmark = pytest.mark.slow
CAUSE = "unpacked_in_other_order"
UNEQUAL = [((2,), (3,)), ((2, 2), (3,)), ((1,), (2,), (3,))]
SIZES = [*UNEQUAL, ((3,), (3,))]


def scenario(*shapes: tuple[int, ...], num_steps: int = 1) -> Scenario:
    """Return steps of one bucket with parameters of these shapes."""
    listed = tuple(
        ParameterSpec(f"p{n}", shape, ("R",)) for n, shape in enumerate(shapes)
    )
    return Scenario(MeshSpec((2,), ("dp",)), listed, (1,) * num_steps, 1 << 20)


class Reversed(CopiedBuckets):
    """Walks the gradients backwards, each with its own size."""

    @override
    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        super().unpack(flat, [*reversed(parts)])


class SizesOfAnother(CopiedBuckets):
    """Cuts the bucket by sizes in one order, and copies to gradients in another one."""

    @override
    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        cuts = flat.split([part.numel() for part in parts])
        for part, cut in zip(reversed(parts), cuts, strict=True):
            part.copy_(cut.view(part.shape))


class FlatSizesOfAnother(CopiedBuckets):
    """Copies between flat tensors."""

    @override
    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        cuts = flat.split([part.numel() for part in parts])
        for part, cut in zip(reversed(parts), cuts, strict=True):
            part.view(-1).copy_(cut)


class NarrowsByAnother(CopiedBuckets):
    """Moves on by the size of one gradient, and reads the size of another one."""

    @override
    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        start = 0
        for part, other in zip(parts, reversed(parts), strict=True):
            part.copy_(flat.narrow(0, start, other.numel()).view_as(part))
            start += other.numel()


class PacksBackwards(CopiedBuckets):
    """Walks the gradients backwards where it packs."""

    @override
    def pack(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return super().pack([*reversed(parts)])


class BackwardsTwice(PacksBackwards, Reversed):
    """Is right: both walks go backwards."""


class StartsOneLate(CopiedBuckets):
    """Reads each gradient one element too late: an offset, and no other order."""

    @override
    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        super().unpack(torch.cat([flat[1:], flat[-1:]]), parts)


class IsTooShort(CopiedBuckets):
    """Cuts an element off."""

    @override
    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        super().unpack(flat[:-1], parts)


def first(subject: type, played: Scenario) -> FoundViolation:
    return next(iter(syncverify.play(played, subject).violations))


@pytest.mark.parametrize("shapes", SIZES)
@pytest.mark.parametrize(
    "subject", [Reversed, SizesOfAnother, FlatSizesOfAnother, PacksBackwards]
)
def test_two_orders_of_one_bucket_are_the_cause(
    subject: type, shapes: tuple[tuple[int, ...], ...]
) -> None:
    found = first(subject, scenario(*shapes)).violation
    assert found.cause == CAUSE
    assert "packed in the order" in found.summary
    functions = {line.function for line in found.evidence.named_lines}
    assert {"pack", "unpack"} <= functions


@pytest.mark.parametrize("shapes", UNEQUAL)
def test_sizes_in_another_order_are_the_cause(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    assert first(NarrowsByAnother, scenario(*shapes)).violation.cause == CAUSE


def test_an_error_makes_another_order_likely_and_values_certain() -> None:
    sizes, values = (
        first(subject, scenario((2,), (3,))).violation
        for subject in (SizesOfAnother, Reversed)
    )
    assert certainty(CAUSE, sizes.evidence).startswith("likely")
    assert certainty(CAUSE, values.evidence).startswith("certain")


def test_the_hint_asks_for_one_order() -> None:
    assert "in the same order" in hint_of(CAUSE)


@pytest.mark.parametrize("shapes", SIZES)
@pytest.mark.parametrize("subject", [StartsOneLate, IsTooShort])
def test_a_wrong_offset_is_no_other_order(
    subject: type, shapes: tuple[tuple[int, ...], ...]
) -> None:
    assert first(subject, scenario(*shapes)).violation.cause != CAUSE


@pytest.mark.parametrize("subject", [CopiedBuckets, BackwardsTwice])
def test_one_order_is_right(subject: type) -> None:
    assert syncverify.play(scenario((2,), (3,), num_steps=2), subject).is_right
