"""The norm of parameters that are sharded over two axes of a mesh, where d9d 0.24 raises."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


def test_d9d_refuses_a_norm_over_two_sharded_axes(ranks) -> None:
    """docs/in-d9d.md says so of d9d 0.24; the layout "both" of `test_gradient_norm.py` is ours."""
    reason = "pip install --no-deps d9d==0.24.0"
    theirs = pytest.importorskip("d9d.internals.grad_norm", reason=reason)

    def program(_: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        placements = [Shard(0), Shard(1)]
        local = torch.zeros(2, 2)
        one = nn.Parameter(DTensor.from_local(local, mesh, placements, run_check=False))
        one.grad = torch.ones_like(one)
        groups = theirs.group_parameters_for_norm([one])
        with pytest.raises(ValueError, match="more than one mesh dimension"):
            theirs.clip_grad_norm_distributed_(groups, 1.0, 2.0, None)

    ranks.run(4, program)
