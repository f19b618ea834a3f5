"""All ranks of a torchrun job are there and run the same code, or nothing is played."""

import json

import pytest
import torch.distributed as dist

from syncverify.errors import EnvironmentNotSupportedError, NoVerdictError
from syncverify.playing.roll_call import Facts, call_roll

HERE = {"host": "a", "syncverify": "1.0", "the subject's file": "mine.py of SHA-256 12"}
THERE = {**HERE, "host": "b"}


def roll(*facts: Facts, rank: int = 0, world_size: int = 2) -> list[str]:
    """Call the roll as one rank, after the others have."""
    store = dist.HashStore()
    for other, each in enumerate(facts):
        store.set(f"roll/{other}", json.dumps(each))
    return [
        *call_roll(
            store, facts[rank], rank=rank, world_size=world_size, patience_seconds=0.01
        )
    ]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_differs_is_named_there_and_on_rank_0(rank: int) -> None:
    other = {**THERE, "the subject's file": "mine.py of SHA-256 34"}
    with pytest.raises(EnvironmentNotSupportedError) as refusal:
        roll(HERE, THERE, other, rank=rank, world_size=3)
    assert str(refusal.value) == (
        "expected the subject's file to be equal on all ranks, got mine.py of SHA-256 12 on "
        "rank 0 (a) and mine.py of SHA-256 34 on rank 2 (b); install the same on all machines"
    )


def test_a_rank_that_does_not_come_is_named() -> None:
    with pytest.raises(
        NoVerdictError, match=r"^expected 3 ranks, got no word of \[2\]"
    ):
        roll(HERE, THERE, world_size=3)


def test_a_job_that_torchrun_starts_again_in_the_same_store_is_refused() -> None:
    store = dist.HashStore()
    assert [*call_roll(store, HERE, rank=0, world_size=1)] == ["a"]
    with pytest.raises(NoVerdictError, match=r"^torchrun starts this job again"):
        call_roll(store, HERE, rank=0, world_size=1)
