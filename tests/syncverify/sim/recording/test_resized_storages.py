"""Memory that `resize_` gives back, while a stream uses it, and afterwards."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import syncverify

Give = Callable[[torch.Tensor], object]
Program = Callable[[], torch.Tensor]


def to_zero(full: torch.Tensor) -> None:
    full.untyped_storage().resize_(0)


def larger(full: torch.Tensor) -> None:
    full.untyped_storage().resize_(4096)


def to_zero_and_back(full: torch.Tensor) -> None:
    size = full.untyped_storage().nbytes()
    full.untyped_storage().resize_(0)
    full.untyped_storage().resize_(size)
    full.fill_(3)


def to_other_data(full: torch.Tensor) -> None:
    full.data = torch.empty(0, device="cuda")


GIVE: tuple[Give, ...] = (
    to_zero, larger, to_zero_and_back, to_other_data,
)  # fmt: skip


def used_on_side(
    give: Give, *, before: Callable[[torch.Tensor, torch.cuda.Stream], object], writes: bool
) -> Program:  # fmt: skip
    """Return a program that gives memory back after a use on a side stream."""

    def program() -> torch.Tensor:
        full, side = torch.ones(8, device="cuda"), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out = full.mul_(2) if writes else full * 2
        before(full, side)
        give(full)
        del full
        other = torch.full((8,), 9.0, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        return other if writes else out + other

    return program


def nothing(*_: object) -> None:
    """Order nothing."""


def wait(_: torch.Tensor, side: torch.cuda.Stream) -> None:
    torch.cuda.current_stream().wait_stream(side)


def record(full: torch.Tensor, side: torch.cuda.Stream) -> None:
    full.record_stream(side)


@pytest.mark.parametrize(
    ("give", "writes"), [(to_zero, True), *((give, False) for give in GIVE)]
)
def test_memory_resized_in_use_is_freed_in_use(give: Give, *, writes: bool) -> None:
    program = used_on_side(give, before=nothing, writes=writes)
    (found,) = syncverify.simulate(program, ranks=1).violations
    assert found.violation.identity == ("memory_outlives_its_streams", "freed_in_use")


@pytest.mark.parametrize("before", [wait, record])
@pytest.mark.parametrize("give", GIVE, ids=lambda each: each.__name__)
def test_memory_resized_after_its_last_use_is_right(give: Give, before: Give) -> None:
    program = used_on_side(give, before=before, writes=False)
    assert not syncverify.simulate(program, ranks=1).violations


def test_the_harm_of_resized_memory_is_shown() -> None:
    program = used_on_side(to_zero, before=nothing, writes=False)
    (found,) = syncverify.simulate(program, ranks=1).violations
    assert "nan" in str(found.harm)


def test_a_collective_in_flight_writes_to_no_memory_that_was_given_back() -> None:
    def program() -> torch.Tensor:
        state = torch.ones(8, device="cuda")
        work = dist.all_reduce(state, async_op=True)
        state.untyped_storage().resize_(0)
        other = torch.ones(8, device="cuda")
        work.wait()
        return other

    (found,) = syncverify.simulate(program, ranks=2).violations
    assert found.violation.cause == "freed_in_use"


def test_a_race_is_shown_although_its_memory_was_given_back_later() -> None:
    def program() -> torch.Tensor:
        one, two = torch.ones(8, device="cuda"), torch.ones(8, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            product = one * two
        two.add_(1)
        torch.cuda.current_stream().wait_stream(side)
        one.untyped_storage().resize_(0)
        return product

    (found,) = syncverify.simulate(program, ranks=1).violations
    assert found.violation.cause == "race"


def test_a_use_of_memory_that_was_given_back_raises_as_on_a_gpu() -> None:
    def program() -> torch.Tensor:
        full = torch.ones(8, device="cuda")
        flat = full.view(2, 4)
        full.untyped_storage().resize_(0)
        assert full.view(-1).shape == (8,)  # a view needs no memory
        return flat * 2

    (found,) = syncverify.simulate(program, ranks=1).violations
    assert "an illegal memory access was encountered" in found.violation.summary
    assert "aten.mul.Tensor" in found.violation.summary


def test_memory_that_is_allocated_again_is_used_as_before() -> None:
    def program() -> torch.Tensor:
        full = torch.empty(8, device="cuda")
        for _ in range(2):
            full.untyped_storage().resize_(32)
            dist.all_gather_single(full, torch.ones(4, device="cuda"))
            total = full.sum()
            full.untyped_storage().resize_(0)
        return total

    assert not syncverify.simulate(program, ranks=2).violations
