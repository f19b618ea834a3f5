"""Tags of messages: NCCL does not look at them, gloo does."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from syncverify import simulate
from syncverify.faces.simulation.program import Device


def messages(
    sent: list[int], received: list[int], device: Device, *, in_batches: bool = False
) -> Callable[[int], list[float]]:
    """Make a program: rank 0 sends the tags as values, and rank 1 returns what it got by tag."""

    def program(rank: int) -> list[float]:
        tensors = {
            tag: torch.full((2,), 0.0 if rank else float(tag), device=device)
            for tag in sent
        }
        tags, call = ((sent, dist.isend), (received, dist.irecv))[rank]
        ops = [dist.P2POp(call, tensors[tag], 1 - rank, tag=tag) for tag in tags]
        if in_batches:
            works = dist.batch_isend_irecv(ops)
        else:
            works = [call(tensors[tag], 1 - rank, tag=tag) for tag in tags]
        for work in works:
            work.wait()
        return [tensors[tag][0].item() for tag in sent]

    return program


@pytest.mark.parametrize("in_batches", [True, False])
def test_messages_that_nccl_takes_in_another_order_are_a_remark(in_batches) -> None:
    simulation = simulate(
        messages([1, 2, 3], [1, 3, 2], "cuda", in_batches=in_batches), 2
    )
    assert simulation.is_right
    assert simulation.results[1] == [1.0, 3.0, 2.0]
    (remark,) = simulation.to_json()["remarks"]
    assert remark.startswith("the message with tag 2 at tests/")
    assert "on rank 0 meets the receive with tag 3 at tests/" in remark
    assert "on rank 1: NCCL matches messages by their order, and does not" in remark


@pytest.mark.parametrize("received", [[1, 2], [2, 1]])
def test_gloo_tells_messages_apart_by_their_tags(received: list[int]) -> None:
    simulation = simulate(messages([1, 2], received, "cpu"), 2, device="cpu")
    simulation.check()
    assert simulation.remarks == ()
    assert simulation.results[1] == [1.0, 2.0]


def sends_with_a_tag_of_its_own(rank: int) -> None:
    tensor = torch.ones(2, device="cuda")
    if rank:
        dist.recv(tensor, 0)
    else:
        dist.send(tensor, 1, tag=7)


def test_tags_in_one_order_and_a_tag_on_one_side_are_no_remark() -> None:
    for program in (messages([2, 1], [2, 1], "cuda"), sends_with_a_tag_of_its_own):
        simulation = simulate(program, 2)
        simulation.check()
        assert simulation.remarks == ()


def crosses_on_gloo(rank: int) -> None:
    tensor = torch.ones(2)
    tags = (1, 2) if rank else (2, 1)
    for tag in tags:
        if rank:
            dist.recv(tensor, 0, tag=tag)
        else:
            dist.send(tensor, 1, tag=tag)


def test_a_send_and_a_receive_of_other_tags_wait_for_ever_on_gloo() -> None:
    (found,) = simulate(crosses_on_gloo, 2, device="cpu").violations
    assert found.violation.cause == "deadlock"
