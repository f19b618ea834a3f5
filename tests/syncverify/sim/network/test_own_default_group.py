"""Default groups that programs make, their store, and collectives in inference mode."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from tests.free_programs import play, tried


def total(value: float) -> float:
    tensor = torch.full((2,), value)
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_a_program_makes_its_default_group() -> None:
    def program(rank: int) -> None:
        dist.init_process_group("nccl")
        assert dist.get_backend() == "nccl"
        assert (dist.get_rank(), dist.get_world_size()) == (rank, 2)
        assert total(rank + 1) == 3
        dist.destroy_process_group()

    play(program, 2)


def test_a_second_group_beside_the_first_is_torchs_error() -> None:
    def program(_: int) -> None:
        dist.init_process_group("gloo")
        dist.init_process_group("gloo")

    _, _, errors = tried(program, 1)
    with pytest.raises(ValueError, match="twice"):
        raise errors[0] or AssertionError


def test_a_group_of_another_size_is_refused() -> None:
    def program(rank: int) -> None:
        dist.init_process_group("gloo", rank=rank, world_size=8)

    _, _, errors = tried(program, 1)
    with pytest.raises(ValueError, match="expected rank 0 of 1"):
        raise errors[0] or AssertionError


def test_a_collective_in_inference_mode_and_a_wait_after_it() -> None:
    def program(rank: int) -> None:
        with torch.inference_mode():
            assert total(rank + 1) == 3
            late = torch.ones(2)
            work = dist.all_reduce(late, async_op=True)
        work.wait()
        assert late.tolist() == [2, 2]
        plain = torch.ones(2)
        with torch.inference_mode():
            dist.all_reduce(plain)
        assert plain.tolist() == [2, 2]

    play(program, 2)


def test_a_group_is_split_as_nccl_splits_it() -> None:
    def program(rank: int) -> None:
        for _ in range(2):
            half = dist.split_group(split_ranks=[[0, 1], [2]])
            if rank == 3:
                assert half is None
                continue
            assert half is not None
            tensor = torch.full((2,), rank + 1.0, device="cuda")
            dist.all_reduce(tensor, group=half)
            assert tensor.tolist() == [3, 3]

    play(program, 4, device="cuda")


def test_a_rank_that_does_not_split_keeps_the_others_waiting() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            dist.split_group(split_ranks=[[0], [1]])

    _, stall, _ = tried(program, 2, device="cuda")
    assert "split 1 of group" in str(stall.details[0])


# The store, in which ranks meet.


def test_a_rank_that_waits_for_a_key_lets_the_others_run() -> None:
    found: dict[int, bytes] = {}

    def program(rank: int) -> None:
        store = c10d._get_default_store()
        store.set(f"key {rank}", f"value {rank}")
        found[rank] = store.get(f"key {1 - rank}")
        assert store.check([f"key {rank}"])
        assert not store.check(["no key"])

    play(program, 2)
    assert found == {0: b"value 1", 1: b"value 0"}


def test_a_key_that_was_deleted_is_not_there() -> None:
    """Through the prefix that torch puts in front of every key."""

    def program(_: int) -> None:
        store = c10d._get_default_store()
        store.set("key", "value")
        assert store.delete_key("key")
        assert not store.check(["key"])
        assert not store.delete_key("key")

    play(program, 1)


def test_a_key_that_nobody_sets_ends_the_run_and_is_named() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            c10d._get_default_store().get("nothing")

    _, stall, _ = tried(program, 2)
    assert stall.kind == "deadlock"
    assert "nothing" in "".join(stall.details)
