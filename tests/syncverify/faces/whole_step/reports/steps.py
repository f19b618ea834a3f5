"""Reports about the step around gradients: divisors, scales, clearing, clipping, micro-batches."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from tests.syncverify.faces.whole_step.reports.by_hand import summed
from tests.syncverify.faces.whole_step.reports.mixture import (
    Batch,
    Mixture,
    Reported,
    Stepped,
    split_experts,
)


class _Router(nn.Module):
    """Each row goes to one expert. So the gate has the gradient of its own loss alone."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.Parameter(torch.randn(num_experts, width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.experts[self.gate(x).argmax(-1)]
        return torch.einsum("rw,rwv->rv", x, chosen)

    def losses(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        main = functional.mse_loss(self(batch["x"]), batch["y"], reduction="sum")
        return main, self.gate(batch["x"]).logsumexp(-1).square().sum()


class MegatronLM5047(Reported):
    """An auxiliary loss is scaled by the tokens of a rank, and divided by those of all `tp` ranks."""

    layouts: ClassVar = ["tp=2"]
    split: ClassVar = ["tp"]

    def build(self, width: int = 4, experts: int = 4) -> nn.Module:
        return _Router(width, experts)

    def loss(self, model: _Router, batch: Batch) -> torch.Tensor:
        """Return the mean loss of a row, with that of the gate."""
        main, auxiliary = model.losses(batch)
        return (main + auxiliary) / len(batch["x"])

    def step(self, model, batch, mesh, optimizer):
        """Add the losses of all tokens, and divide gradients by their number."""
        group, num_own = mesh.get_group("tp"), len(batch["x"])
        num_tokens = num_own * group.size()
        main, auxiliary = model.losses(batch)
        scale = num_tokens if self.is_repaired else num_own
        (main + auxiliary / num_tokens * scale).backward()
        for each in model.parameters():
            each.grad = summed(each.grad, group) / num_tokens
        optimizer.step()
        optimizer.zero_grad()


class Transformers39648(Stepped):
    """The loss is multiplied by the number of processes, of which some have the same tokens."""

    layouts: ClassVar = ["dp=2,tp=2"]
    own: ClassVar = {"experts": {"tp": 0}}

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        """Split the experts over `tp`, where all ranks have the same rows."""
        split_experts(model, mesh.get_group("tp"))

    def step(self, model, batch, mesh, optimizer):
        """Divide by the number of all tokens, and undo the average over `dp`."""
        made = model(batch["x"])
        total = functional.mse_loss(made, batch["y"], reduction="sum")
        num_items = summed(torch.tensor(made.numel()), mesh.get_group("dp"))
        num_processes = mesh["dp"].size() if self.is_repaired else mesh.size()
        (total / num_items * num_processes).backward()
        self.reduce(model, mesh)
        optimizer.step()
        optimizer.zero_grad()


class Transformers46113(Stepped):
    """Clipping is given gradients where it expects parameters, so it scales nothing."""

    clip = 0.1

    def reduce(self, model: Mixture, mesh: DeviceMesh) -> dict[str, torch.Tensor]:
        super().reduce(model, mesh)
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        clipped = [*model.parameters()] if self.is_repaired else gradients
        nn.utils.clip_grads_with_norm_(clipped, self.clip, norm)
        return {"norm": norm}


class DeepSpeed7837Scale(Stepped):
    """Gradients are divided by a scale by which the loss was never multiplied."""

    def scaler(self) -> GradScaler:
        return GradScaler("cpu")

    def step(self, model, batch, mesh, optimizer, scaler):
        made = self.loss(model, batch)
        scaled = scaler.scale(made)
        (scaled if self.is_repaired else made).backward()
        self.reduce(model, mesh)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


class DeepSpeed7837Clear(Stepped):
    """Gradients are never cleared."""

    def step(self, model, batch, mesh, optimizer):
        self.loss(model, batch).backward()
        self.reduce(model, mesh)
        optimizer.step()
        if self.is_repaired:
            optimizer.zero_grad()


class _Sums:
    """Sums of gradients, over inner ranks at once and over outer ones after the last backward."""

    def __init__(self, mesh: DeviceMesh, *, is_repaired: bool) -> None:
        self.mesh = mesh
        self.is_repaired = is_repaired
        self.is_last = True
        self.sums = dict[nn.Parameter, torch.Tensor]()
        self.finished = dict[nn.Parameter, torch.Tensor]()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Mark the backward passes of a block as not the last; as reported, this does nothing."""
        self.is_last = not self.is_repaired
        yield
        self.is_last = True

    def add(self, parameter: nn.Parameter) -> None:
        """Add a gradient to its sum, and finish the sum if the gradient is the last."""
        self._average(parameter.grad, "dp_inner")
        if parameter in self.finished:
            del self.sums[parameter], self.finished[parameter]
        known = self.sums.get(parameter, torch.zeros_like(parameter))
        self.sums[parameter] = known + parameter.grad
        parameter.grad = None
        if self.is_last:
            self.finished[parameter] = self.sums[parameter].clone()
            self._average(self.finished[parameter], "dp_outer")

    def give_to_optimizer(self) -> None:
        """Make finished sums the gradients of parameters."""
        for parameter, finished in self.finished.items():
            parameter.grad = finished

    def _average(self, gradient: torch.Tensor, axis: str) -> None:
        dist.all_reduce(gradient, group=self.mesh.get_group(axis))
        gradient /= self.mesh[axis].size()


class MegatronLM7186(Reported):
    """Each backward counts as the last one, so sums are cleared before the next micro-batch."""

    layouts: ClassVar = ["dp_outer=2,dp_inner=2"]
    micro_batches = 2

    def parallelize(self, model: Any, mesh: DeviceMesh) -> None:
        """Sum gradients as soon as they are ready."""
        model.sums = _Sums(mesh, is_repaired=self.is_repaired)
        for each in model.parameters():
            each.register_post_accumulate_grad_hook(model.sums.add)

    def step(self, model, micro_batches, optimizer):
        """Add up the micro-batches, and step."""
        for index, each in enumerate(micro_batches):
            is_last = index == len(micro_batches) - 1
            with nullcontext() if is_last else model.sums.no_sync():
                (self.loss(model, each) / len(micro_batches)).backward()
        model.sums.give_to_optimizer()
        optimizer.step()
        optimizer.zero_grad()


class Verl6176(Reported):
    """Ranks run as many backwards as their own rows need, and each backward has a collective."""

    def parallelize(self, model: Mixture, mesh: DeviceMesh) -> None:
        """Shard parameters over `dp`."""
        fully_shard(model, mesh=mesh["dp"])

    def step(self, model, batch, mesh, optimizer):
        """Run rank 0's rows in two parts, and those of others in one; or pad with weight 0."""
        rows = batch["x"].shape[0]
        sizes = [rows] if mesh.get_local_rank("dp") else [rows // 2, rows - rows // 2]
        if self.is_repaired:
            sizes += [0] * (2 - len(sizes))
        first = 0
        for size in sizes:
            taken = slice(first, first + size) if size else slice(0, 1)
            first += size
            made = model(batch["x"][taken])
            total = functional.mse_loss(made, batch["y"][taken], reduction="sum")
            (total * (size > 0) / batch["y"].numel()).backward()
        optimizer.step()
        optimizer.zero_grad()
