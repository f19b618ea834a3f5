"""A rank that lacks gradients says so to the others, without a collective."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from syncverify.synchronizer import (
    BucketNotReadyError,
    GradientSynchronizer,
    ReductionFailedError,
    SynchronizerError,
)

KIB_MB = 2**-10
GOT = "  got:      "


def make(names: str) -> tuple[GradientSynchronizer, dict[str, nn.Parameter]]:
    mesh = init_device_mesh("cpu", (2,))
    group = {}
    for name in names:
        tensor = DTensor.from_local(torch.zeros(512), mesh, [Replicate()])
        group[name] = nn.Parameter(tensor)
    parameter_names = {each: name for name, each in group.items()}
    sums = GradientSynchronizer(
        [list(group.values())], KIB_MB, 1, parameter_names=parameter_names
    )
    return sums, group


def accumulate(parameter: nn.Parameter) -> None:
    parameter.to_local().sum().backward()


def got(call: Callable[[], Any], error: type[SynchronizerError]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value).splitlines()[2].removeprefix(GOT)


def test_each_rank_hears_what_others_lack_as_far_as_they_said(ranks) -> None:
    def program(rank: int) -> list[str]:
        sums, group = make("abc")
        found = []
        with sums:
            accumulate(group["ab"[rank]])
            for speaker in (0, 1, 0):
                if rank == speaker:
                    found.append(got(sums.wait, BucketNotReadyError))
                dist.barrier()
        return found

    assert ranks.run(2, program) == [
        [
            "c 0, b 0",
            "c 0, b 0; rank 1 called wait() without a gradient for c, a",
        ],
        ["c 0, a 0; rank 0 called wait() without a gradient for c, b"],
    ]


def test_flush_says_so_as_well(ranks) -> None:
    def program(rank: int) -> str:
        sums, group = make("ab")
        with sums:
            accumulate(group["a"])
            found = ""
            for speaker, call in ((0, sums.flush), (1, sums.flush)):
                if rank == speaker:
                    found = got(call, BucketNotReadyError)
                dist.barrier()
        return found

    assert ranks.run(2, program)[1] == (
        "b 0; rank 0 called flush() without a gradient for b"
    )


@pytest.mark.parametrize("ending", ["wait", "zero_grad", "reset"])
def test_what_was_said_is_forgotten_with_the_step(ranks, ending) -> None:
    def program(rank: int) -> str:
        sums, group = make("ab")
        with sums:
            if rank == 0:
                got(sums.wait, BucketNotReadyError)
            dist.barrier()
            if ending == "wait":
                for name in "ba":
                    accumulate(group[name])
                sums.wait()
                if rank:
                    sums.zero_grad()
            else:
                getattr(sums, ending)()
            dist.barrier()
            return got(sums.wait, BucketNotReadyError) if rank else ""

    assert ranks.run(2, program)[1] == "b 0, a 0"


def test_a_note_of_a_step_that_others_have_left_is_not_read(ranks) -> None:
    """Rank 1 is told nothing by rank 0's complaint about the step after."""

    def program(rank: int) -> str:
        sums, group = make("ab")
        with sums:
            for name in "ba":
                accumulate(group[name])
            if rank == 0:
                sums.wait()
                sums.zero_grad()
                got(sums.wait, BucketNotReadyError)
            dist.barrier()
            if rank == 0:
                return ""
            fail = lambda: 1 // 0  # noqa: E731
            sums._sequence.buckets[0]._reduction._pending = SimpleNamespace(finish=fail)
            return got(sums.wait, ReductionFailedError)

    assert ranks.run(2, program)[1] == (
        "ZeroDivisionError: integer division or modulo by zero"
    )


def test_a_rank_that_got_its_gradients_after_all_takes_its_note_back(ranks) -> None:
    def program(rank: int) -> str:
        sums, group = make("ab")
        with sums:
            if rank == 0:
                got(sums.wait, BucketNotReadyError)
            for name in "ba":
                accumulate(group[name])
            if rank == 0:
                sums.wait()
            dist.barrier()
            if rank == 0:
                return ""
            fail = lambda: 1 // 0  # noqa: E731
            sums._sequence.buckets[0]._reduction._pending = SimpleNamespace(finish=fail)
            return got(sums.wait, ReductionFailedError)

    assert "rank 0" not in ranks.run(2, program)[1]


def test_a_reduction_that_fails_says_who_lacked_what(ranks, monkeypatch) -> None:
    def fail() -> None:
        raise RuntimeError("timed out")

    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: SimpleNamespace(wait=fail))

    def program(rank: int) -> list[str]:
        sums, group = make("abc")
        sums.bind()
        for name in "cba"[: 1 if rank == 0 else 3]:
            accumulate(group[name])
        if rank == 0:
            got(sums.wait, BucketNotReadyError)
        dist.barrier()
        lines: list[str] = []
        if rank:
            with pytest.raises(ReductionFailedError) as caught:
                sums.wait()
            lines = str(caught.value).splitlines()
        dist.barrier()
        with pytest.raises(ReductionFailedError):
            sums.unbind()
        return lines

    assert ranks.run(2, program)[1] == [
        "the reduction of bucket 0 failed",
        "  expected: every rank to take part, and none to leave",
        GOT
        + "RuntimeError: timed out; rank 0 called wait() without a gradient for b, a",
        "  where:    rank 1 of 2, bucket 0",
        f"  hint: {ReductionFailedError.hint}",
    ]


def test_a_store_that_went_away_says_nothing(ranks, monkeypatch) -> None:
    def program(rank: int) -> str:
        sums, _ = make("ab")
        with sums:
            rendezvous = sums._sequence.missing._rendezvous

            def fail(*_: Any) -> None:
                raise dist.DistNetworkError("connection reset by peer")

            rendezvous.peek = fail
            return got(sums.wait, BucketNotReadyError)

    assert ranks.run(2, program) == ["b 0, a 0"] * 2
