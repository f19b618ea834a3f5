"""The table before training, compared with the training."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.contract.config import DEFAULT_CONFIG
from tests.programs import accumulate, parameter

KIB_MB = 2**-10
AVERAGED = SynchronizerConfig(
    axis_reductions={"dp": "avg", "tp": "none"}, wire_dtype=torch.float32
)


TABLE = """\
bucket  parameters    dtype     bytes  padding  op   wire      ranks       axes    launch
0       plain         float32   12     116      -    -         this one    -       -
1       rows          bfloat16  200    56       sum  bfloat16  1, 3        dp      0
2       b and 1 more  bfloat16  400    112      sum  bfloat16  0, 1, 2, 3  dp, tp  1
2 reductions a step, of 3 buckets; 612 bytes and 284 of padding; exposed tail 512 bytes"""


def make(
    names: tuple[str, str] | None, config: SynchronizerConfig = DEFAULT_CONFIG
) -> GradientSynchronizer:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
    placements = {
        "a": (Replicate(), Replicate()),
        "b": (Replicate(), Replicate()),
        "rows": (Replicate(), Shard(0)),
    }
    module = nn.Module()
    for name, placement in placements.items():
        made = parameter(mesh, *placement, numel=100, dtype=torch.bfloat16)
        module.register_parameter(name, made)
    module.register_parameter("plain", nn.Parameter(torch.zeros(3)))
    return GradientSynchronizer.from_module(module, KIB_MB, 1, config=config)


def test_the_table_shows_buckets_bytes_ranks_and_launch_order(ranks) -> None:
    def program(_: int) -> list[str]:
        return str(make(("dp", "tp")).explain()).splitlines()

    assert ranks.run(4, program)[1] == TABLE.splitlines()


def test_a_mean_is_told_from_a_sum_of_which_some_axes_are_averaged(ranks) -> None:
    def program(_: int) -> list[str]:
        partly = SynchronizerConfig(axis_reductions={"dp": "avg"})
        plans = [make(("dp", "tp"), each).explain() for each in (AVERAGED, partly)]
        return [plan.buckets[-1].op for plan in plans]

    assert ranks.run(4, program)[1] == ["avg", "sum / 2"]


@pytest.mark.parametrize(("config", "expected"), [(DEFAULT_CONFIG, 2), (AVERAGED, 1)])
def test_the_predicted_collectives_are_those_that_happen(
    ranks, monkeypatch, config, expected
) -> None:
    seen: list[str] = []

    def observe(name: str) -> None:
        collective = getattr(dist, name)

        def observed(*tensors: Any, group: Any, async_op: bool) -> Any:
            if dist.get_rank() == 2:
                members = ", ".join(map(str, dist.get_process_group_ranks(group)))
                dtype = str(tensors[-1].dtype).removeprefix("torch.")
                seen.append(
                    f"{name} of {tensors[-1].nbytes} bytes of {dtype}"
                    f" over ranks {members}"
                )
            return collective(*tensors, group=group, async_op=async_op)

        monkeypatch.setattr(dist, name, observed)

    observe("all_reduce")

    def program(_: int) -> tuple[str, ...]:
        with make(("dp", "tp"), config) as synchronizer:
            for group in synchronizer._param_groups:
                for each in group:
                    accumulate(each)
            synchronizer.wait()
            return synchronizer.explain().collectives

    predicted = ranks.run(4, program)[2]
    assert list(predicted) == seen
    assert len(seen) == expected
