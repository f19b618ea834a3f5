"""Buckets that are copied: packed and unpacked in two orders, or several in one buffer.

No wait mends the sums of a shared buffer, so the buffer is the cause.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from typing_extensions import override

import syncverify
from syncverify.report.evidence import remedy_of
from syncverify.report.hints import certainty
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from tests.syncverify.explain.repair.flat_buckets import FlatBuckets

pytestmark = pytest.mark.slow


def one_bucket(*shapes: tuple[int, ...], num_steps: int = 1) -> Scenario:
    """Return steps of one bucket with parameters of these shapes."""
    listed = tuple(
        ParameterSpec(f"p{n}", shape, ("R",)) for n, shape in enumerate(shapes)
    )
    return Scenario(MeshSpec((2,), ("dp",)), listed, (1,) * num_steps, 1 << 20)


def two_buckets(*axes: str) -> Scenario:
    """Return a step of two buckets of different sizes, on two ranks along each axis."""
    placements = ("R",) * len(axes)
    listed = (
        ParameterSpec("a", (2,), placements),
        ParameterSpec("b", (3,), placements),
    )
    return Scenario(MeshSpec((2,) * len(axes), axes), listed, (1,), 1)


def violations(subject: type, played: Scenario) -> list[FoundViolation]:
    return [*syncverify.play(played, subject).violations]


def first(subject: type, played: Scenario) -> FoundViolation:
    return violations(subject, played)[0]


class CopiedBuckets(FlatBuckets):
    """Packs a bucket when it is complete, and unpacks it in `wait()`."""

    @override
    def launch(self, bucket: Any) -> None:
        parts = [each.grad.to_local() for each in bucket["parameters"]]
        flat, work = self.pack(parts), None
        for axis in bucket["axes"]:
            if work is not None:
                work.wait()
            group = bucket["parameters"][0].device_mesh.get_group(axis)
            work = dist.all_reduce(flat, group=group, async_op=True)
        self.pending.append((flat, parts, work))
        bucket["ready"].clear()

    def pack(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a flat copy of gradients."""
        return torch.cat([part.reshape(-1) for part in parts])

    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """Copy sums back to gradients."""
        start = 0
        for part in parts:
            part.copy_(flat[start : start + part.numel()].view_as(part))
            start += part.numel()

    def copy_back(self) -> None:
        """Finish all buckets that were launched."""
        for flat, parts, work in self.pending:
            work.wait()
            self.unpack(flat, parts)
        self.pending.clear()

    @override
    def wait(self) -> None:
        self.copy_back()
        for parameter in self.count:
            self.count[parameter] = 0


CAUSE = "unpacked_in_other_order"
SIZES = [((2, 2), (3,)), ((1,), (2,), (3,)), ((3,), (3,))]


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


@pytest.mark.parametrize("shapes", SIZES)
@pytest.mark.parametrize("subject", [Reversed, SizesOfAnother, PacksBackwards])
def test_two_orders_of_one_bucket_are_the_cause(
    subject: type, shapes: tuple[tuple[int, ...], ...]
) -> None:
    found = first(subject, one_bucket(*shapes)).violation
    assert found.cause == CAUSE
    assert "packed in the order" in found.summary
    functions = {line.function for line in found.evidence.named_lines}
    assert {"pack", "unpack"} <= functions


def test_an_error_makes_another_order_likely_and_values_certain() -> None:
    sizes, values = (
        first(subject, one_bucket((2,), (3,))).violation
        for subject in (SizesOfAnother, Reversed)
    )
    assert certainty(CAUSE, sizes.evidence).startswith("likely")
    assert certainty(CAUSE, values.evidence).startswith("certain")


@pytest.mark.parametrize("shapes", SIZES)
def test_a_wrong_offset_is_no_other_order(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert first(StartsOneLate, one_bucket(*shapes)).violation.cause != CAUSE


@pytest.mark.parametrize("subject", [CopiedBuckets, BackwardsTwice])
def test_one_order_is_right(subject: type) -> None:
    assert syncverify.play(one_bucket((2,), (3,), num_steps=2), subject).is_right


# Buckets that share one buffer.
IN_FLIGHT = ("bucket_is_exclusive_while_reducing", "buffer_shared")
OVERWRITTEN = ("gradient_equals_reference", "buffer_shared")
WAIT_MISSING = ("bucket_is_exclusive_while_reducing", "touched_in_flight")


class OneBuffer(CopiedBuckets):
    """Packs every bucket into one buffer, and copies it back in `wait()`."""

    @override
    def bind(self) -> None:
        self.staging = torch.zeros(64)
        super().bind()

    @override
    def pack(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        flat = self.staging[: sum(part.numel() for part in parts)]
        return torch.cat([part.reshape(-1) for part in parts], out=flat)


class LaunchesInWait(OneBuffer):
    """Launches all buckets in `wait()`."""

    @override
    def launch(self, bucket: Any) -> None:
        self.complete = [*getattr(self, "complete", []), bucket]

    @override
    def wait(self) -> None:
        for bucket in self.complete:
            super().launch(bucket)
        self.complete = []
        super().wait()


class WaitsForTheEarlier(OneBuffer):
    """Waits for the earlier bucket before it packs: the order is right, and the sums are lost."""

    @override
    def launch(self, bucket: Any) -> None:
        for *_, work in self.pending:
            work.wait()
        super().launch(bucket)

    @override
    def copy_back(self) -> None:
        for *_, work in self.pending:
            work.wait()
        super().copy_back()


class ReadsInFlightOfTheNext(WaitsForTheEarlier):
    """Copies the earlier bucket back while the next one is in flight."""

    @override
    def copy_back(self) -> None:
        CopiedBuckets.copy_back(self)


class CopiesBackFirst(OneBuffer):
    """Is right: it copies the earlier bucket back before it packs."""

    @override
    def launch(self, bucket: Any) -> None:
        self.copy_back()
        super().launch(bucket)


class CopiesBackUnawaited(CopiesBackFirst):
    """Lacks the wait before it copies the earlier bucket back."""

    @override
    def launch(self, bucket: Any) -> None:
        for flat, parts, _ in self.pending:
            self.unpack(flat, parts)
        self.pending.clear()
        CopiedBuckets.launch(self, bucket)


@pytest.mark.parametrize("axes", [("dp",), ("dp", "tp")])
@pytest.mark.parametrize("subject", [OneBuffer, LaunchesInWait, ReadsInFlightOfTheNext])
def test_a_shared_buffer_is_the_cause_of_a_write_in_flight(
    subject: type, axes: tuple[str, ...]
) -> None:
    (found,) = violations(subject, two_buckets(*axes))
    assert found.violation.identity == IN_FLIGHT
    assert "into the memory of all_reduce" in found.violation.summary
    assert not remedy_of(found.violation)
    assert {"launch", "pack"} <= functions(found)


def functions(found: FoundViolation) -> set[str]:
    return {each.function for each in found.violation.evidence.named_lines}


def test_a_shared_buffer_is_the_cause_of_lost_sums() -> None:
    (found,) = violations(WaitsForTheEarlier, two_buckets("dp"))
    assert found.violation.identity == OVERWRITTEN
    assert {"launch", "pack"} <= functions(found)


def test_a_buffer_that_is_used_in_turns_lacks_a_wait() -> None:
    identities = {
        each.violation.identity
        for each in violations(CopiesBackUnawaited, two_buckets("dp"))
    }
    assert WAIT_MISSING in identities
    assert IN_FLIGHT not in identities


@pytest.mark.parametrize("subject", [CopiedBuckets, CopiesBackFirst])
def test_buckets_that_do_not_need_the_memory_at_once_are_right(subject: type) -> None:
    assert not violations(subject, two_buckets("dp", "tp"))
