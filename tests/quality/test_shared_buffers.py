"""Buckets that share one buffer: the cause is the buffer, since no wait mends the sums."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from typing_extensions import override

import syncverify
from syncverify.report.evidence import remedy_of
from syncverify.report.hints import hint_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from tests.quality.copied_buckets import CopiedBuckets

pytestmark = pytest.mark.slow
P = ParameterSpec
IN_FLIGHT = ("bucket_is_exclusive_while_reducing", "buffer_shared")
OVERWRITTEN = ("gradient_equals_reference", "buffer_shared")
WAIT_MISSING = ("bucket_is_exclusive_while_reducing", "touched_in_flight")


def scenario(*axes: str, micro_batches: int = 1) -> Scenario:
    """Return a step of two buckets of different sizes, on two ranks along each axis."""
    placements = ("R",) * len(axes)
    listed = (P("a", (2,), placements), P("b", (3,), placements))
    mesh = MeshSpec((2,) * len(axes), axes)
    return Scenario(mesh, listed, (micro_batches,), 1)


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


class ClearsFirst(OneBuffer):
    """Clears the buffer before it packs, gradient by gradient."""

    @override
    def pack(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        flat = self.staging[: sum(part.numel() for part in parts)].zero_()
        for part, place in zip(
            parts, flat.split([part.numel() for part in parts]), strict=True
        ):
            place.add_(part.reshape(-1))
        return flat


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


def violations(subject: type, played: Scenario) -> list[FoundViolation]:
    return [*syncverify.play(played, subject).violations]


@pytest.mark.parametrize("axes", [("dp",), ("dp", "tp")])
@pytest.mark.parametrize(
    "subject", [OneBuffer, ClearsFirst, LaunchesInWait, ReadsInFlightOfTheNext]
)
def test_a_shared_buffer_is_the_cause_of_a_write_in_flight(
    subject: type, axes: tuple[str, ...]
) -> None:
    (found,) = violations(subject, scenario(*axes))
    assert found.violation.identity == IN_FLIGHT
    assert "into the memory of all_reduce" in found.violation.summary
    assert not remedy_of(found.violation)
    assert {"launch", "pack"} <= functions(found)


def functions(found: FoundViolation) -> set[str]:
    return {each.function for each in found.violation.evidence.named_lines}


def test_a_shared_buffer_is_the_cause_of_lost_sums() -> None:
    (found,) = violations(WaitsForTheEarlier, scenario("dp"))
    assert found.violation.identity == OVERWRITTEN
    assert {"launch", "pack"} <= functions(found)


def test_the_hint_asks_for_one_buffer_for_each_bucket() -> None:
    assert hint_of("buffer_shared").startswith("make one buffer for each bucket")


def test_a_buffer_that_is_used_in_turns_lacks_a_wait() -> None:
    identities = {
        each.violation.identity
        for each in violations(CopiesBackUnawaited, scenario("dp"))
    }
    assert WAIT_MISSING in identities
    assert IN_FLIGHT not in identities


@pytest.mark.parametrize("subject", [CopiedBuckets, CopiesBackFirst])
def test_buckets_that_do_not_need_the_memory_at_once_are_right(subject: type) -> None:
    assert not violations(subject, scenario("dp", "tp"))
