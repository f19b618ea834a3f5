"""Each rank reads its own variables, as a launcher sets them."""

import os
from os import environ

import pytest
import torch.distributed as dist
from torch import nn

from syncverify.judge.properties import check
from syncverify.playing.choice import open_backend
from syncverify.scenario.contract import Capabilities
from syncverify.sim.network.threaded_world import (
    has_groups,
    init_fake_process_group,
    thread_local_world,
)
from syncverify.sim.process_wide.rank_variables import RANK_VARIABLES, rank_environment
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter

SCENARIO = one_parameter(4, "p", (3,))


CONTRACT = Capabilities(tensors="local")


class ReadsItsRank:
    """Sums gradients where all variables are those of the rank."""

    def __init__(self, groups: list[list[nn.Parameter]], _mb: float, _n: int) -> None:
        (self.parameter,) = (p for group in groups for p in group)
        rank = dist.get_rank()
        expected = [rank, rank % 2, rank // 2, 4, 2]
        assert [int(environ[name]) for name in RANK_VARIABLES] == expected
        assert "RANK" in os.environ
        assert os.getenv("LOCAL_RANK", "none") == str(rank % 2)
        assert os.environ.get("SYNCVERIFY_UNKNOWN") is None

    def bind(self) -> None: ...

    def wait(self) -> None:
        dist.all_reduce(self.parameter.grad)

    def zero_grad(self) -> None:
        self.parameter.grad = None

    def unbind(self) -> None: ...


def test_blocks_may_end_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that hangs is left, and its block may end while another run plays."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    left, later = rank_environment(has_groups), rank_environment(has_groups)
    with thread_local_world():
        init_fake_process_group(rank=1, world_size=2)
        left.__enter__()
        later.__enter__()
        left.__exit__(None, None, None)
        assert os.environ["LOCAL_RANK"] == "1"
        later.__exit__(None, None, None)
        assert "LOCAL_RANK" not in os.environ
        dist.destroy_process_group()


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["sim", "fake", pytest.param("gloo", marks=pytest.mark.slow)]
)
def test_a_rank_reads_its_own(name: str) -> None:
    before = [os.environ.get(name) for name in RANK_VARIABLES]
    subject = resolve(ReadsItsRank, CONTRACT)
    backend = open_backend(name, subject)
    try:
        run = backend.run(SCENARIO, subject)
    finally:
        backend.close()
    assert run.fault is None
    assert check(SCENARIO, run, CONTRACT) == []
    assert [os.environ.get(name) for name in RANK_VARIABLES] == before
