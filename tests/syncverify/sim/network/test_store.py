"""Simulated ranks that meet in the store take turns, and never hang."""

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from syncverify.sim.machine import SimulatedMachine


def test_a_rank_that_waits_for_a_key_lets_the_others_run() -> None:
    found: dict[int, bytes] = {}

    def program(rank: int) -> None:
        store = c10d._get_default_store()
        store.set(f"key {rank}", f"value {rank}")
        found[rank] = store.get(f"key {1 - rank}")
        assert store.check([f"key {rank}"])
        assert not store.check(["no key"])

    ranks, stall = SimulatedMachine(2).run(program)
    assert [rank.error for rank in ranks] == [None, None]
    assert stall is None
    assert found == {0: b"value 1", 1: b"value 0"}


def test_a_key_that_was_deleted_is_not_there() -> None:
    """Through the prefix that torch puts in front of every key."""

    def program(_: int) -> None:
        store = c10d._get_default_store()
        store.set("key", "value")
        assert store.delete_key("key")
        assert not store.check(["key"])
        assert not store.delete_key("key")

    ranks, _ = SimulatedMachine(1).run(program)
    assert ranks[0].error is None


def test_a_key_that_nobody_sets_ends_the_run_and_is_named() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            c10d._get_default_store().get("nothing")
        else:
            assert dist.get_rank() == 1

    _, stall = SimulatedMachine(2).run(program)
    assert stall is not None
    assert stall.kind == "deadlock"
    assert "nothing" in "".join(stall.details)
