"""Random trainings in lower dtypes, drawn by a seed: right ones, and ones with a factor of 2."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from syncverify import parity
from syncverify.errors import UsageError
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.whole_step.parity import Parity

WIDTH: Final = 8
WORDS: Final = 16
LENGTH: Final = 6
# By how much the planted mistake multiplies gradients.
FACTOR: Final = 2.0

Arguments = Mapping[str, Any]


class Layers(nn.Module):
    """A norm, a layer up and a layer down; their result is added to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.down(functional.gelu(self.up(self.norm(x))))
        return x + hidden


class Attention(nn.Module):
    """A norm and attention of two heads; their result is added to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        heads = (*x.shape[:2], -1, WIDTH // 2)
        q, k, v = (
            f(normed).view(heads).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        scores = (q @ k.transpose(-1, -2)) / heads[-1] ** 0.5
        mixed = torch.softmax(scores, -1) @ v
        added: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return x + added


def mlp() -> nn.Sequential:
    """Make a model of two layers and a head."""
    return nn.Sequential(Layers(), Layers(), nn.Linear(WIDTH, 4))


def attention() -> nn.Sequential:
    """Make a model of attention, layers, and a head."""
    return nn.Sequential(Attention(), Layers(), nn.Linear(WIDTH, 4))


def gpt() -> nn.Sequential:
    """Make a small language model."""
    blocks = (Attention(), Layers(), Attention(), Layers())
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.Linear(WIDTH, WORDS))


def vectors() -> torch.Tensor:
    """Make 16 rows of vectors."""
    return torch.randn(16, LENGTH, WIDTH)


def words() -> torch.Tensor:
    """Make 16 rows of words."""
    return torch.randint(WORDS, (16, LENGTH + 1))


def square(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return a mean of squares."""
    out: torch.Tensor = model(batch)
    return (out + 1).square().mean()


def next_word(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the loss of the next words."""
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
    @override
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    @override
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * FACTOR


def _planted(draw: random.Random) -> Callable[[nn.Sequential], None]:
    """Return a function that doubles the gradients of a block and of all before it."""
    place = draw.choice([0, 1, -1])

    def doubled(_: object, __: object, out: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = Doubled.apply(out)  # type: ignore[no-untyped-call]
        return found

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
            _split(model, mesh)
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


def _split(model: nn.Sequential, mesh: DeviceMesh) -> None:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for each in model:
        if isinstance(each, Layers):
            parallelize_module(each, mesh["tp"], plan)


def _tensor_parallel(draw: random.Random, arguments: Arguments) -> Wiring:
    """Draw tensor parallelism in one dtype."""
    kind = draw.choice(["tp=2", "tp=4"])
    dtype = draw.choice([torch.bfloat16, torch.float32])
    return _split, {"layouts": [kind], "dtype": dtype}


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


def _synchronizer(draw: random.Random, arguments: Arguments) -> Wiring:
    """Draw our synchronizer, in one dtype."""
    kind = draw.choice(["dp=2", "dp=4"])
    dtype = draw.choice([torch.bfloat16, torch.float32])
    loss, clip = arguments["loss"], arguments.get("clip")
    number = arguments["micro_batches"]

    def wired(model: nn.Module, mesh: DeviceMesh) -> None:
        config = SynchronizerConfig(
            process_group=mesh.get_group("dp"), process_group_reduction="avg"
        )
        made = GradientSynchronizer.from_module(
            model, bucket_size_mb=1, require_accumulations=number, config=config
        )
        made.bind()
        model.synchronizer = made  # type: ignore[assignment]

    def step(model: Any, micro_batches: list[Any], optimizer: Any) -> dict[str, Any]:
        for each in micro_batches:
            (loss(model, each) / number).backward()
        model.synchronizer.wait()
        returned = {}
        if clip is not None:
            norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
            returned["norm"] = norm
        optimizer.step()
        model.synchronizer.zero_grad()
        return returned

    more = {"layouts": [kind], "dtype": dtype, "step": step}
    return wired, more


_WIRINGS: Final[dict[str, Callable[[random.Random, Arguments], Wiring]]] = {
    "fsdp": _fsdp,
    "tp": _tensor_parallel,
    "ddp": _ddp,
    "synchronizer": _synchronizer,
}
