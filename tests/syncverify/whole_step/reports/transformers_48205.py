"""The gradient of a gate's scores has the rank's own experts alone."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh

from tests.syncverify.whole_step.reports.mixture import Mixture, split_experts

layouts = ["ep=2"]
own = {"experts": {"ep": 0}}


def parallelize(model: Mixture, mesh: DeviceMesh, *, is_repaired: bool = False) -> None:
    """Split the experts over ranks that have the same rows."""
    scores_in = model.scores_in
    split_experts(model, mesh.get_group("ep"))
    if not is_repaired:
        model.scores_in = scores_in
