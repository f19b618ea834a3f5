"""The table before training, and that it says what then happens."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from synchronizer import GradientSynchronizer

KIB_MB = 2**-10


def make(names: tuple[str, str] | None) -> GradientSynchronizer:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
    placements = {
        "a": (Replicate(), Replicate()),
        "b": (Replicate(), Replicate()),
        "rows": (Replicate(), Shard(0)),
    }
    module = nn.Module()
    for name, placement in placements.items():
        local = torch.zeros(100, dtype=torch.bfloat16)
        tensor = DTensor.from_local(local, mesh, placement, run_check=False)
        module.register_parameter(name, nn.Parameter(tensor))
    module.register_parameter("plain", nn.Parameter(torch.zeros(3)))
    return GradientSynchronizer.from_module(module, KIB_MB, 1)


def test_the_table_shows_buckets_bytes_ranks_and_launch_order(ranks) -> None:
    def program(_: int) -> list[str]:
        return str(make(("dp", "tp")).explain()).splitlines()

    assert ranks.run(4, program)[1] == [
        "bucket  parameters    dtype     bytes  padding  ranks       axes    launch",
        "0       plain         float32   12     116      this one    -       -",
        "1       rows          bfloat16  200    56       1, 3        dp      0",
        "2       b and 1 more  bfloat16  400    112      0, 1, 2, 3  dp, tp  1",
        "2 reductions a step, of 3 buckets; 612 bytes and 284 of padding",
    ]


def test_the_axes_of_an_unnamed_mesh_are_numbers(ranks) -> None:
    def program(_: int) -> list[tuple[str, ...]]:
        return [bucket.axes for bucket in make(None).explain().buckets]

    assert ranks.run(4, program)[0] == [(), ("0",), ("0", "1")]


def test_the_predicted_collectives_are_those_that_happen(ranks, monkeypatch) -> None:
    seen: list[str] = []
    all_reduce = dist.all_reduce

    def observed(tensor: torch.Tensor, *, group: Any, async_op: bool) -> Any:
        if dist.get_rank() == 2:
            members = ", ".join(map(str, dist.get_process_group_ranks(group)))
            dtype = str(tensor.dtype).removeprefix("torch.")
            seen.append(
                f"all_reduce of {tensor.nbytes} bytes of {dtype} over ranks {members}"
            )
        return all_reduce(tensor, group=group, async_op=async_op)

    monkeypatch.setattr(dist, "all_reduce", observed)

    def program(_: int) -> tuple[str, ...]:
        with make(("dp", "tp")) as synchronizer:
            for group in synchronizer._param_groups:
                for each in group:
                    local = each.to_local() if isinstance(each, DTensor) else each
                    local.sum().backward()
            synchronizer.wait()
            return synchronizer.explain().collectives

    predicted = ranks.run(4, program)[2]
    assert list(predicted) == seen
    assert len(seen) == 2


def test_nothing_to_synchronize_explains_as_nothing() -> None:
    assert str(GradientSynchronizer([], 1, 1).explain()).splitlines() == [
        "bucket  parameters  dtype  bytes  padding  ranks  axes  launch",
        "0 reductions a step, of 0 buckets; 0 bytes and 0 of padding",
    ]
