"""Reports about experts: the groups of their gradients, their norm, and the gate."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_module

from tests.syncverify.faces.whole_step.reports.by_hand import joins, splits, summed
from tests.syncverify.faces.whole_step.reports.mixture import (
    Mixture,
    Reported,
    Stepped,
    average,
    send_rows,
    split_experts,
    squares,
)


class _ClippedExperts(Stepped):
    """Each rank has its own rows and experts; all gradients are clipped by one norm."""

    layouts: ClassVar = ["ep=2"]
    split: ClassVar = ["ep"]
    own: ClassVar = {"experts": {"ep": 0}}
    clip = 0.1

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        send_rows(model, mesh.get_group("ep"))

    def reduce(self, model: Mixture, mesh: DeviceMesh) -> None:
        group = mesh.get_group("ep")
        average(model.dense(), group)
        model.experts.grad /= group.size()
        of_experts = self.squares_of_all(squares([model.experts]), group)
        norm = (squares(model.dense()) + of_experts).sqrt()
        nn.utils.clip_grads_with_norm_(model.parameters(), self.clip, norm)

    def squares_of_all(self, own: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
        raise NotImplementedError


class Automodel3816(_ClippedExperts):
    """Each expert group takes the norm of its own experts, and clips shared weights by it."""

    def squares_of_all(self, own: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
        return summed(own, group) if self.is_repaired else own


class MegatronLM5916(_ClippedExperts):
    """The norm takes the experts of the ranks for copies, and counts those of one rank."""

    def squares_of_all(self, own: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
        return summed(own * (self.is_repaired or group.rank() == 0), group)


class MegatronLM6080(Stepped):
    """Experts that each `tp` rank has whole are reduced over the group of dense layers."""

    layouts: ClassVar = ["dp=2,tp=2"]

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        """Give each `tp` rank a part of the rows, and all experts."""
        group = mesh.get_group("tp")
        model.rows_in = model.scores_in = partial(splits, group=group)
        model.rows_out = partial(joins, group=group)

    def reduce(self, model: Mixture, mesh: DeviceMesh) -> None:
        if self.is_repaired:
            model.experts.grad = summed(model.experts.grad, mesh.get_group("tp"))
        super().reduce(model, mesh)


class MegatronLM7165(Stepped):
    """Experts are divided by the number of ranks of an axis different from the one that adds them."""

    layouts: ClassVar = ["dp=1,gtp=4"]
    split: ClassVar = ["dp", "gtp"]
    own: ClassVar = {"experts": {"gtp": 0}}

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        send_rows(model, mesh.get_group("gtp"))

    def reduce(self, model: Mixture, mesh: DeviceMesh) -> None:
        """Average over `dp`, then dense layers over `gtp`, which was carved out of it."""
        super().reduce(model, mesh)
        average(model.dense(), mesh.get_group("gtp"))
        if self.is_repaired:
            model.experts.grad /= mesh["gtp"].size()


class Torchtitan2387(Reported):
    """The gradient of a gate's output is labelled whole where DTensor ends, and is a part."""

    layouts: ClassVar = ["tp=2"]
    own: ClassVar = {"experts": {"tp": 0}}

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        """Split the experts, and keep the gate on each rank."""
        split_experts(model, mesh.get_group("tp"))
        model.scores_in = lambda scores: scores
        placements = (Partial(),) if self.is_repaired else None

        def enter(_: Any, inputs: Any, mesh: DeviceMesh) -> DTensor:
            return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)

        def leave(_: Any, output: DTensor, mesh: DeviceMesh) -> Any:
            return output.to_local(grad_placements=placements)

        distribute_module(model.gate, mesh["tp"], None, enter, leave)


class Torchtitan4054(Reported):
    """The gradient of the rows that enter split experts is a part, and is never summed."""

    layouts: ClassVar = ["tp=2"]
    own: ClassVar = {"experts": {"tp": 0}}

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        rows_in = model.rows_in
        split_experts(model, mesh.get_group("tp"))
        if not self.is_repaired:
            model.rows_in = model.scores_in = rows_in


class Transformers48205(Reported):
    """The gradient of a gate's scores has the rank's own experts alone."""

    layouts: ClassVar = ["ep=2"]
    own: ClassVar = {"experts": {"ep": 0}}

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        scores_in = model.scores_in
        split_experts(model, mesh.get_group("ep"))
        if not self.is_repaired:
            model.scores_in = scores_in


class _Adapted(Mixture):
    """Experts with one LoRA pair for all of them."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__(width, num_experts)
        self.shared_a = nn.Parameter(torch.zeros(2, width))
        self.shared_b = nn.Parameter(torch.zeros(width, 2))
        self.start(seed=0)

    def start(self, seed: int) -> None:
        """Set the factor that does not start at zero."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            # As `build()` does, in the dtype of a new model.
            self.shared_a.copy_(torch.randn(self.shared_a.shape, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted = x @ self.shared_a.T @ self.shared_b.T
        return super().forward(x) + adapted


class MegatronBridge5396(Reported):
    """A LoRA factor that all expert ranks share starts from each rank's own random numbers."""

    layouts: ClassVar = ["ep=2"]
    own: ClassVar = {"experts": {"ep": 0}}

    def build(self, width: int = 4, experts: int = 4) -> nn.Module:
        return _Adapted(width, experts)

    def parallelize(self, model: _Adapted, mesh: DeviceMesh) -> None:
        group = mesh.get_group("ep")
        split_experts(model, group)
        model.start(seed=0 if self.is_repaired else group.rank())
