"""Right trainings of many kinds: parallelism, optimizers, and parts of a model."""

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from syncverify.faces.whole_step.training import Function
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests.syncverify.faces.whole_step.planted import expert_parallel
from tests.syncverify.faces.whole_step.planted.expert_parallel import Experts
from tests.syncverify.faces.whole_step.planted.steps import Optimizer, add, sgd, update
from tests.syncverify.faces.whole_step.reports.by_hand import (
    own_part,
    sums,
    sums_gradient,
)

WIDTH = 4


@dataclass(frozen=True)
class Right:
    """A right training: its name, and arguments of `parity`."""

    name: str
    layout: str
    parallelize: Function
    build: Function = field(default_factory=lambda: build)
    batch: Function = field(default_factory=lambda: batch)
    loss: Function = field(default_factory=lambda: loss)
    more: dict[str, Any] = field(default_factory=dict)


class Block(nn.Module):
    """A norm, and a layer up and down around it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(self.norm(x))))


class Tied(nn.Module):
    """An embedding that is the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(WIDTH, WIDTH, bias=False)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.middle(torch.tanh(self.embedding(x))))
        return self.head(hidden)


class Unused(nn.Module):
    """A layer in the forward pass, and a layer that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class Lora(nn.Module):
    """A frozen layer with two factors, one of them zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False)
        self.first = nn.Linear(WIDTH, 2, bias=False)
        self.second = nn.Linear(2, WIDTH, bias=False)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.second(self.first(x))


class Gated(nn.Module):
    """A layer, and experts that are split over ranks behind a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.group: dist.ProcessGroup | None = None
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Linear(WIDTH, 1)
        self.up = nn.Parameter(torch.randn(WIDTH, 2 * WIDTH))
        self.down = nn.Parameter(torch.randn(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.layer(x))
        gate, own = torch.sigmoid(self.gate(x)), x
        if self.group is not None:
            own, gate = (sums_gradient(each, self.group) for each in (x, gate))
        out = gate * (torch.tanh(own @ self.up) @ self.down)
        return out if self.group is None else sums(out, self.group)


def build() -> nn.Sequential:
    return nn.Sequential(Block(), Block(), nn.Linear(WIDTH, WIDTH))


def build_on_cuda() -> nn.Module:
    """Make the model for a training on GPUs, which are there in a play alone."""
    return build().cuda() if torch.cuda.is_available() else build()


def frozen() -> nn.Sequential:
    model = build()
    model[0].requires_grad_(requires_grad=False)
    return model


def normalized() -> nn.Sequential:
    """Make a model with running statistics that stay as they are."""
    norm = nn.BatchNorm1d(WIDTH)
    norm.running_mean = torch.randn(WIDTH)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), norm.eval(), nn.Linear(WIDTH, WIDTH))


def batch() -> torch.Tensor:
    return torch.randn(16, 2, WIDTH)


def weighted_rows() -> dict[str, torch.Tensor]:
    return {"x": batch().cuda(), "mask": torch.ones(16, 2, device="cuda")}


def rows() -> torch.Tensor:
    return torch.randn(8, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return 3 * (out.square() * out + out).mean()


def weighted_loss(model, batch, mesh=None):
    """Return a loss whose average over ranks, which FSDP2 takes, is the mean over all tokens."""
    total = (model(batch["x"]).square().sum(-1) * batch["mask"]).sum()
    count = batch["mask"].sum()
    if mesh is None:
        return total / count
    dist.all_reduce(count, group=mesh.get_group("dp"))
    return total * mesh["dp"].size() / count


def ddp(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(model, process_group=mesh.get_group("dp"))


def ddp_with_unused(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(model, find_unused_parameters=True)


def checkpointed_ddp(model: nn.Sequential, mesh: DeviceMesh) -> nn.Module:
    model[0], model[1] = checkpoint_wrapper(model[0]), checkpoint_wrapper(model[1])
    return ddp(model, mesh)


def fsdp(model: nn.Sequential, mesh: DeviceMesh) -> None:
    for each in (*model, model):
        fully_shard(each, mesh=mesh["dp"])


def whole_fsdp(model: nn.Module, mesh: DeviceMesh) -> None:
    fully_shard(model, mesh=mesh["dp"])


def tensor_parallel(model: nn.Sequential, mesh: DeviceMesh) -> None:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in [*model][:2]:
        parallelize_module(block, mesh["tp"], plan)


def sequence_parallel(model: nn.Sequential, mesh: DeviceMesh) -> None:
    """Split layers over `tp`, and norms over the sequence."""
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(),
    }
    whole = PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Shard(1)
    )
    for block in [*model][:2]:
        parallelize_module(block, mesh["tp"], plan)
        parallelize_module(block, mesh["tp"], whole)


def tensor_parallel_fsdp(model: nn.Sequential, mesh: DeviceMesh) -> None:
    tensor_parallel(model, mesh)
    fsdp(model, mesh)


def synchronized(model: Gated, mesh: DeviceMesh) -> None:
    """Split experts over `tp`, and let our synchronizer average over `dp`."""
    group = model.group = mesh.get_group("tp")
    model.up = nn.Parameter(own_part(model.up, group, dim=1))
    model.down = nn.Parameter(own_part(model.down, group))
    config = SynchronizerConfig(
        process_group=mesh.get_group("dp"), process_group_reduction="avg"
    )
    synchronizer = GradientSynchronizer.from_module(
        model, bucket_size_mb=1, require_accumulations=2, config=config
    )
    synchronizer.bind()
    model.synchronizer = synchronizer  # type: ignore[assignment]


def synchronized_step(model, micro_batches, optimizer):
    for each in micro_batches:
        (loss(model, each) / len(micro_batches)).backward()
    model.synchronizer.wait()
    optimizer.step()
    model.synchronizer.zero_grad()


def own_stage(model: Tied, mesh: DeviceMesh) -> None:
    """Keep the embedding and the middle on the first rank, and the head on the second."""
    with torch.no_grad():
        weight = nn.Parameter(model.head.weight.detach().clone())
    if mesh["pp"].get_local_rank() == 0:
        del model.head
    else:
        del model.embedding, model.middle
        model.head.weight = weight


def staged_step(model, batch, mesh, optimizer, *, adds_tied=True):
    """Send activations to the second rank, and their gradients back."""
    group = mesh.get_group("pp")
    shape = batch.shape
    if group.rank() == 0:
        hidden = torch.tanh(model.middle(torch.tanh(model.embedding(batch))))
        dist.send(hidden.detach(), 1)
        gradient = torch.empty(shape, dtype=batch.dtype)
        dist.recv(gradient, 1)
        hidden.backward(gradient)
        tied = model.embedding.weight
    else:
        received = torch.empty(shape, dtype=batch.dtype)
        dist.recv(received, 0)
        received.requires_grad_()
        out = model.head(received)
        (3 * (out.square() * out + out).mean()).backward()
        dist.send(received.grad, 0)
        tied = model.head.weight
    if adds_tied:
        add([tied], mesh, "pp")
    update(optimizer)


def expert_step(model, batch, mesh, optimizer):
    """Make a step of experts, with clipping by one norm."""
    expert_parallel.backward(model, batch, mesh)
    norm = expert_parallel.right_norm(model, mesh)
    nn.utils.clip_grads_with_norm_(model.parameters(), 0.5, norm)
    update(optimizer)


def two_optimizers(parameters: list[nn.Parameter]) -> list[Optimizer]:
    half = len(parameters) // 2
    return [sgd(parameters[:half]), torch.optim.AdamW(parameters[half:], lr=0.01)]


def amsgrad(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, amsgrad=True)


def scaler(device: str = "cpu") -> GradScaler:
    return GradScaler(device, init_scale=1024.0)


_SGD = {"optimizer": sgd}
_EXPERTS = {
    "step": expert_step,
    "clip": 0.5,
    "split": ["dp", "ep"],
    "own": expert_parallel.OWN,
}
_WEIGHTED = {
    "device": "cuda",
    "weights": "mask",
    "scaler": functools.partial(scaler, "cuda"),
    "clip": 0.1,
}
_GATED = {
    "step": synchronized_step,
    "micro_batches": (2,),
    "own": {"up": {"tp": 1}, "down": {"tp": 0}},
}
RIGHT = [
    Right("tp-and-sp", "tp=2", sequence_parallel, more={"clip": 0.1}),
    Right("tp-x-fsdp2", "dp=2,tp=2", tensor_parallel_fsdp, more={"clip": 0.1}),
    Right("ddp", "dp=2", ddp, more={"clip": 0.1}),
    Right("synchronizer-dp-x-tp", "dp=2,tp=2", synchronized, Gated, more=_GATED),
    Right("experts", "dp=2,ep=2", expert_parallel.split, Experts,
          expert_parallel.batch, expert_parallel.loss, _EXPERTS),
    Right("tied-across-stages", "pp=2", own_stage, Tied, rows,
          more={"step": staged_step, "optimizer": sgd}),
    Right("tied-fsdp2", "dp=2", whole_fsdp, Tied, rows, more={"clip": 0.1}),
    Right("lora", "dp=2", ddp, Lora, rows, more=_SGD),
    Right("frozen-fsdp2", "dp=2", fsdp, frozen),
    Right("unused", "dp=2", ddp_with_unused, Unused, rows),
    Right("statistics-that-stay", "dp=2", ddp, normalized, rows),
    Right("accumulation", "dp=2", ddp, more={"micro_batches": (1, 4)}),
    Right("scaler-ddp", "dp=2", ddp, more={"scaler": scaler, "clip": 0.1}),
    Right("weights-on-cuda", "dp=2", fsdp, build_on_cuda, weighted_rows, weighted_loss,
          _WEIGHTED),
    Right("amsgrad", "dp=2", fsdp, more={"optimizer": amsgrad, "steps": 3}),
    Right("no-limit", "dp=2", fsdp, more={"clip": float("inf")}),
    Right("two-optimizers", "dp=2", fsdp, more={"optimizer": two_optimizers}),
    Right("checkpointing", "dp=2", checkpointed_ddp),
]  # fmt: skip
