"""The gradient of the rows that enter split experts is a part, and is never summed."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh

from tests.syncverify.whole_step.reports.mixture import Mixture, split_experts

layouts = ["tp=2"]
own = {"experts": {"tp": 0}}


def parallelize(model: Mixture, mesh: DeviceMesh, *, is_repaired: bool = False) -> None:
    """Split the experts over ranks that have the same rows."""
    rows_in = model.rows_in
    split_experts(model, mesh.get_group("tp"))
    if not is_repaired:
        model.rows_in = model.scores_in = rows_in
