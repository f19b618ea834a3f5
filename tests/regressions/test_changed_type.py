"""Python 3.13 goes on to use a `__getitem__` that it has cached, after 500 changes of it.

A search of 500 scenarios changed that of `os.environ` as often, and a rank that reads variables
got a KeyError then. One change is left.
"""

import os

import pytest
import torch.distributed as dist

from syncverify.sim.network.threaded_world import (
    has_groups,
    init_fake_process_group,
    thread_local_world,
)
from syncverify.sim.process_wide.rank_variables import rank_environment

NUM_SCENARIOS = 1200


def read() -> str:
    return os.environ["LOCAL_RANK"]


def test_each_of_many_scenarios_has_variables_of_its_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with thread_local_world():
        init_fake_process_group(rank=1, world_size=2)
        try:
            for _ in range(NUM_SCENARIOS):
                with rank_environment(has_groups):
                    assert [read() for _ in range(5)] == ["1"] * 5
                with pytest.raises(KeyError):
                    read()
        finally:
            dist.destroy_process_group()
