"""The gradient of a gate's output is labelled whole where DTensor ends, and is a part."""

from __future__ import annotations

from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_module

from tests.syncverify.whole_step.reports.mixture import Mixture, split_experts

layouts = ["tp=2"]
own = {"experts": {"tp": 0}}


def parallelize(model: Mixture, mesh: DeviceMesh, *, is_repaired: bool = False) -> None:
    """Split the experts, and keep the gate on each rank."""
    split_experts(model, mesh.get_group("tp"))
    model.scores_in = lambda scores: scores
    placements = (Partial(),) if is_repaired else None

    def enter(_: Any, inputs: Any, mesh: DeviceMesh) -> DTensor:
        return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)

    def leave(_: Any, output: DTensor, mesh: DeviceMesh) -> Any:
        return output.to_local(grad_placements=placements)

    distribute_module(model.gate, mesh["tp"], None, enter, leave)
