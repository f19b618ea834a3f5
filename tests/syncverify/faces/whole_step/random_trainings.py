"""Random trainings, drawn by a seed: ill-conditioned ones, and ones in lower dtypes.

Those in lower dtypes are right, or have a factor of 2.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from syncverify import parity
from syncverify.errors import UsageError
from syncverify.faces.whole_step.outcome import Parity
from tests.syncverify.faces.whole_step.small_gpt import (
    Block,
    split_blocks,
    tensor_parallel_fsdp,
)

WIDTH: Final = 8
WORDS: Final = 16
LENGTH: Final = 6
# By how much the planted mistake multiplies gradients.
FACTOR: Final = 2.0

Arguments = Mapping[str, Any]


class Attention(nn.Module):
    """Attention of one head: the gradient of its key's bias is zero in exact arithmetic."""

    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.key, self.query = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.sharpness = sharpness

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return x + torch.softmax(scores * self.sharpness, -1) @ x


class NearlyConstant(nn.Module):
    """A norm of rows that are constant but for a small part."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self.norm, self.part = nn.LayerNorm(WIDTH), part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(1 + self.part * x)
        return x + normed


class Cancelling(nn.Module):
    """A sum of parameters that is nearly zero, and the gate that it makes."""

    def __init__(self, rest: float) -> None:
        super().__init__()
        half = torch.randn(WIDTH * WIDTH // 2)
        self.terms = nn.Parameter(torch.cat([half, -half]).view(WIDTH, WIDTH))
        self.rest = rest

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + torch.tanh(self.terms.sum() / self.rest))


def mlp() -> nn.Sequential:
    return nn.Sequential(Block(WIDTH), Block(WIDTH), nn.Linear(WIDTH, 4))


def attention() -> nn.Sequential:
    return nn.Sequential(Attention(1.0), Block(WIDTH), nn.Linear(WIDTH, 4))


def gpt() -> nn.Sequential:
    blocks = (Attention(1.0), Block(WIDTH), Attention(1.0), Block(WIDTH))
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.Linear(WIDTH, WORDS))


def vectors() -> torch.Tensor:
    return torch.randn(16, LENGTH, WIDTH)


def words() -> torch.Tensor:
    return torch.randint(WORDS, (16, LENGTH + 1))


def square(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return (out + 1).square().mean()


def next_word(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(batch[:, :-1]).flatten(0, 1)
    # As trainers do; the reference stays in float64.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(logits, batch[:, 1:].flatten())


MODELS: Final = {
    "mlp": (mlp, vectors, square),
    "attention": (attention, vectors, square),
    "gpt": (gpt, words, next_word),
}


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def _adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def drawn(seed: int, *, is_wrong: bool = False) -> Arguments:
    """Draw the arguments of `parity`; in a wrong training some gradients count twice."""
    draw = random.Random(seed)
    model = draw.choice([*MODELS])
    wiring = draw.choice([*_WIRINGS])
    arguments = {
        "seed": seed,
        "device": "cpu",
        "steps": draw.choice([1, 2]),
        "micro_batches": draw.choice([1, 1, 2]),
        **dict(zip(("build", "batch", "loss"), MODELS[model], strict=True)),
        "optimizer": draw.choice([_sgd, _adamw]),
    }
    if draw.random() < 0.5:
        arguments["clip"] = draw.choice([0.05, 0.5])
    wired, more = _WIRINGS[wiring](draw, arguments)
    plant = _planted(draw) if is_wrong else None

    def parallelize(model: nn.Sequential, mesh: DeviceMesh) -> Any:
        if plant is not None:
            plant(model)
        return wired(model, mesh)

    return {**arguments, **more, "parallelize": parallelize}


def judged(arguments: Arguments) -> Parity | None:
    """Compare a training with one rank; None where rounding or overflow hides all of it."""
    try:
        return parity(**arguments)
    except UsageError:
        return None


class Doubled(torch.autograd.Function):
    """A value as it is, with a gradient that counts twice."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * FACTOR


def _planted(draw: random.Random) -> Callable[[nn.Sequential], None]:
    """Return a function that doubles the gradients of a block and of all before it."""
    place = draw.choice([0, 1, -1])

    def doubled(_: object, __: object, out: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(out)  # type: ignore[no-untyped-call]

    def plant(model: nn.Sequential) -> None:
        model[place].register_forward_hook(doubled)

    return plant


Wiring = tuple[Callable[..., Any], dict[str, Any]]


def _fsdp(draw: random.Random, arguments: Arguments) -> Wiring:
    """Draw FSDP2, alone or with tensor parallelism or replicas."""
    kind = draw.choice(["dp=2", "dp=4", "dp=2,tp=2", "dp_replicate=2,dp_shard=2"])
    policy = draw.choice(["bf16-fp32", "bf16-bf16", "fp16-fp32", "fp32-bf16", "bf16"])
    more: dict[str, Any] = {"layouts": [kind], "dtype": torch.float32}
    if policy == "bf16":
        more["dtype"] = torch.bfloat16
    if policy.startswith("fp16"):
        scale = draw.choice([1.0, 1024.0, 2.0**13, 2.0**16])
        more["scaler"] = lambda: GradScaler("cpu", init_scale=scale)
    if policy == "bf16-fp32" and draw.random() < 0.3:
        more["dtype"] = torch.float64
    precision = _POLICIES[policy]

    def wired(model: nn.Sequential, mesh: DeviceMesh) -> None:
        if "tp" in (mesh.mesh_dim_names or ()):
            split_blocks(model, mesh)
        names = tuple(n for n in mesh.mesh_dim_names or () if n.startswith("dp"))
        axes = mesh[names] if len(names) > 1 else mesh[names[0]]
        for each in (*model, model):
            fully_shard(each, mesh=axes, mp_policy=precision)

    return wired, more


_POLICIES: Final = {
    "bf16-fp32": MixedPrecisionPolicy(torch.bfloat16, torch.float32),
    "bf16-bf16": MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16),
    "fp16-fp32": MixedPrecisionPolicy(torch.float16, torch.float32),
    "fp32-bf16": MixedPrecisionPolicy(None, torch.bfloat16),
    "bf16": MixedPrecisionPolicy(),
}


def _tensor_parallel(draw: random.Random, arguments: Arguments) -> Wiring:
    """Draw tensor parallelism in one dtype."""
    kind = draw.choice(["tp=2", "tp=4"])
    dtype = draw.choice([torch.bfloat16, torch.float32])
    return split_blocks, {"layouts": [kind], "dtype": dtype}


def _ddp(draw: random.Random, arguments: Arguments) -> Wiring:
    """Draw DDP, with autocast or in one dtype."""
    kind = draw.choice(["dp=2", "dp=4"])
    dtype = draw.choice([torch.bfloat16, torch.float32])
    more: dict[str, Any] = {"layouts": [kind], "dtype": dtype}
    if dtype is torch.float32:
        plain = arguments["loss"]

        def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found: torch.Tensor = plain(model, batch)
            return found

        more["loss"] = loss

    def wired(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        return DistributedDataParallel(model, process_group=mesh.get_group("dp"))

    return wired, more


_WIRINGS: Final[dict[str, Callable[[random.Random, Arguments], Wiring]]] = {
    "fsdp": _fsdp,
    "tp": _tensor_parallel,
    "ddp": _ddp,
}


def ill_conditioned(seed: int) -> Arguments:
    """Return the arguments of `parity` for a right training in which rounding errors grow."""
    draw = random.Random(seed)
    blocks = [draw.choice(_BLOCKS) for _ in range(draw.randint(1, 3))]
    sizes = [draw.choice([1e-6, 1e-3, 1.0, 30.0, 1000.0]) for _ in blocks]
    logits = draw.choice([1.0, 100.0])
    optimizer = draw.choice(_OPTIMIZERS)
    layout = draw.choice(
        ["dp=2,tp=1", "dp=4,tp=1", "dp=2,tp=2", "dp=1,tp=2", "dp=8,tp=1"]
    )

    def build() -> nn.Module:
        middle = [each(size) for each, size in zip(blocks, sizes, strict=True)]
        layers = [nn.Linear(WIDTH, WIDTH), *middle, Block(WIDTH), nn.Linear(WIDTH, 5)]
        model = nn.Sequential(*layers).cuda()
        with torch.no_grad():
            model[-1].weight.mul_(logits)
        return model

    return {
        "build": build,
        "parallelize": tensor_parallel_fsdp,
        "batch": classified,
        "loss": class_loss,
        "optimizer": optimizer,
        "layouts": [layout],
        "clip": draw.choice([None, 0.1]),
        "micro_batches": [draw.choice([1, 2])] if layout != "dp=8,tp=1" else [1],
        "steps": 3,
        "seed": seed,
    }


def classified() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(16, 3, WIDTH, device="cuda")
    return x, torch.randint(0, 5, (16, 3), device="cuda")


def class_loss(model, batch):
    out = model(batch[0])
    return functional.cross_entropy(out.flatten(0, 1), batch[1].flatten())


_BLOCKS: Final = (Attention, NearlyConstant, Cancelling)
_OPTIMIZERS: Final = (
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01, eps=1e-15),
    lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, eps=1e-15),
    lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
)
