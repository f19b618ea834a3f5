"""Models: real modules for scenarios, with the placements of their parameters."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from syncverify.scenario.layout import coordinates, local_shape, rank_at
from syncverify.scenario.specs import REPLICATE, MeshSpec, ParameterSpec, shard

# Any mesh: global shapes are the same on all.
_ONE_RANK = MeshSpec((1,), ("dp",))
_BATCH = 2


@dataclass(frozen=True, slots=True)
class Model:
    """A module that scenarios may train."""

    # Makes the module of one rank, from the mesh and the global rank. Parameters are
    # float32, in their global shape. `forward` takes a seeded `torch.Generator` of the
    # CPU, draws a batch from it and returns a scalar loss. It runs with local parts as
    # parameters, takes sizes, dtypes and the device from them, and does not
    # communicate.
    build: Callable[[MeshSpec, int], nn.Module]
    # Tensor dim that the last mesh axis cuts, by parameter name; all other parameters
    # are replicated.
    sharded: Mapping[str, int] = field(default_factory=dict)

    def parameters(self, mesh: MeshSpec) -> tuple[ParameterSpec, ...]:
        """Place the parameters on a mesh, in registration order, tied parameters once."""
        with torch.device("meta"):
            module = self.build(_ONE_RANK, 0)
        whole = (REPLICATE,) * len(mesh.shape)
        cut = {n: (*whole[1:], shard(dim)) for n, dim in self.sharded.items()}
        return tuple(
            ParameterSpec(name, tuple(each.shape), cut.get(name, whole))
            for name, each in module.named_parameters()
        )


def initial_value(mesh: MeshSpec, spec: ParameterSpec, rank: int) -> torch.Tensor:
    """Return one rank's part of a parameter's initial value, between -1/2 and 1/2, in float64.

    All parts come from one global tensor: replicas are equal, and shards differ.
    """
    part = torch.arange(torch.Size(spec.global_shape).numel(), dtype=torch.float64)
    # A product with a prime, modulo another prime, has no regular order. In a regular order
    # a layer could cancel terms, and gradients would be 0.
    part = (part * 619 + 17 * len(spec.name)) % 1009 / 1009 - 0.5
    part = part.reshape(spec.global_shape)
    local = local_shape(mesh, spec, rank)
    for dim, size in enumerate(local):
        first = _first_index(mesh, spec, rank, dim)
        part = part.narrow(dim, min(first, part.shape[dim]), size)
    return part


def _first_index(mesh: MeshSpec, spec: ParameterSpec, rank: int, dim: int) -> int:
    """Return the index at which a part begins, after the parts of lower coordinates."""
    if spec.placements is None or spec.placements[-1] != shard(dim):
        return 0
    *others, coordinate = coordinates(mesh, rank)
    return sum(
        local_shape(mesh, spec, rank_at(mesh, (*others, before)))[dim]
        for before in range(coordinate)
    )


class Perceptron(nn.Module):
    """Two linear layers, trained on random numbers."""

    width, hidden = 3, 4

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(self.width, self.hidden)
        self.down = nn.Linear(self.hidden, 1)

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        shape = _BATCH, self.width + 1
        batch = torch.randn(shape, generator=generator, dtype=torch.float32)
        inputs, targets = batch.to(self.up.weight.device).split([self.width, 1], dim=1)
        hidden = functional.gelu(self.up(inputs.to(self.up.weight.dtype)))
        return functional.mse_loss(self.down(hidden).float(), targets)


class ConvNet(nn.Module):
    """Two convolutions, a normalization and a classifier, trained on random images.

    Gradients of weights take over the memory format of the images, so with channels-last images
    they are strided differently from the weights.
    """

    channels, size, classes = 2, 4, 3

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        self._memory_format = memory_format
        self.first = nn.Conv2d(self.channels, 4, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 2, kernel_size=3, stride=2)
        self.classifier = nn.Linear(2, self.classes)

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        shape = (_BATCH, self.channels, self.size, self.size)
        images = torch.randn(shape, generator=generator, dtype=torch.float32)
        labels = torch.randint(self.classes, (_BATCH,), generator=generator)
        images = images.to(self.first.weight, memory_format=self._memory_format)
        features = self.second(functional.relu(self.norm(self.first(images))))
        logits = self.classifier(features.mean(dim=(2, 3)))
        return functional.cross_entropy(logits.float(), labels.to(logits.device))


class SmallGpt(nn.Module):
    """One transformer block between tied embeddings, trained on random tokens."""

    context, vocabulary, width = 3, 5, 4

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(self.vocabulary, self.width)
        self.positions = nn.Embedding(self.context, self.width)
        sizes = self.width, 2, 2 * self.width
        self.block = nn.TransformerEncoderLayer(
            *sizes, dropout=0.0, batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(self.width)
        self.head = nn.Linear(self.width, self.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        shape = _BATCH, self.context + 1
        text = torch.randint(self.vocabulary, shape, generator=generator)
        text = text.to(self.tokens.weight.device)
        positions = torch.arange(self.context, device=text.device)
        hidden = self.tokens(text[:, :-1]) + self.positions(positions)
        mask = hidden.new_full((self.context, self.context), -torch.inf).triu(1)
        logits = self.head(self.norm(self.block(hidden, src_mask=mask, is_causal=True)))
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), text[:, 1:].flatten()
        )


class ExpertLayer(nn.Module):
    """The experts of one rank, applied to the rank's own tokens.

    The router may choose an expert of another rank. Its output is left out here, and tokens
    are not exchanged. Each rank's loss is then one term of a sum, which is enough for exact
    sums of gradients.
    """

    tokens, width, hidden, experts = 2, 3, 2, 4

    def __init__(self, first_expert: int) -> None:
        super().__init__()
        self._first_expert = first_expert
        self.router = nn.Linear(self.width, self.experts, bias=False)
        self.up = nn.Parameter(torch.empty(self.experts, self.width, self.hidden))
        self.down = nn.Parameter(torch.empty(self.experts, self.hidden, self.width))

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        shape = 2, self.tokens, self.width
        batch = torch.randn(shape, generator=generator, dtype=torch.float32)
        inputs, targets = batch.to(self.up.device)
        tokens = inputs.to(self.up.dtype)
        weights = self.router(tokens).softmax(dim=-1)
        chosen = weights * functional.one_hot(weights.argmax(dim=-1), self.experts)
        held = chosen.narrow(1, min(self._first_expert, self.experts), len(self.up))
        hidden = functional.gelu(torch.einsum("tw,ewh->teh", tokens, self.up))
        output = torch.einsum("te,teh,ehw->tw", held, hidden, self.down)
        return functional.mse_loss((tokens + output).float(), targets)


def _build_experts(mesh: MeshSpec, rank: int) -> nn.Module:
    experts_per_rank = math.ceil(ExpertLayer.experts / mesh.shape[-1])
    return ExpertLayer(coordinates(mesh, rank)[-1] * experts_per_rank)


# Data of others names models by these words alone, and never by a module to import.
MODELS: Final[dict[str, Model]] = {
    "mlp": Model(lambda *_: Perceptron()),
    "conv": Model(lambda *_: ConvNet(torch.contiguous_format)),
    "conv_channels_last": Model(lambda *_: ConvNet(torch.channels_last)),
    "moe": Model(_build_experts, sharded={"up": 0, "down": 0}),
    "gpt": Model(lambda *_: SmallGpt()),
}
