"""The reference: what every gradient should be, by the plainest means there are.

Each rank's micro-batch gradients come from ordinary autograd on plain tensors with no
synchronizer in sight; then every parameter is summed by itself, synchronously, over the
ranks that must contribute: naive DDP.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from syncverify import agenda
from syncverify.layout import contributing_ranks, local_shape
from syncverify.materialize import build_model
from syncverify.scenario import ParameterSpec, Scenario
from syncverify.subject import Capabilities
from syncverify.vocabulary import PLAIN

_MAX_ALIKE = 64  # whoever asks plays them all


class MicroBatches(dict[tuple[str, int, int, int], torch.Tensor]):
    """Gradients of single micro-batches, by (parameter name, rank, step, micro-batch).

    A rank is played when one of its gradients is first asked for: of a world of thousands
    only a few ranks are judged.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self._scenario = scenario
        self._played: set[int] = set()

    def __missing__(self, key: tuple[str, int, int, int]) -> torch.Tensor:
        rank = key[1]
        if rank in self._played or not 0 <= rank < self._scenario.mesh.num_ranks:
            raise KeyError(key)
        self.play(rank)
        return self[key]

    def play(self, rank: int) -> None:
        """Run all micro-batches of one rank, without a synchronizer."""
        self._played.add(rank)
        model = build_model(
            _plainly_used(self._scenario),
            rank=rank,
            device=torch.device("cpu"),
            mesh=None,
        )
        trainable = {
            spec: model.parameters[spec.name]
            for spec in self._scenario.parameters
            if spec.requires_grad
        }
        for step in range(self._scenario.num_steps + 1):
            for micro_batch in range(agenda.num_backwards(self._scenario, step)):
                loss = model.loss(step=step, micro_batch=micro_batch)
                gradients = torch.autograd.grad(
                    loss, list(trainable.values()), materialize_grads=True
                )
                for spec, gradient in zip(trainable, gradients, strict=True):
                    frozen = agenda.is_frozen(self._scenario, spec, step)
                    exact = gradient.to(torch.float64) * (not frozen)
                    self[spec.name, rank, step, micro_batch] = exact


@dataclass(frozen=True, slots=True)
class Reference:
    """The oracle's gradients of one scenario.

    Attributes:
        scenario: What was computed.
        capabilities: Whether reduced gradients are sums or means.
        micro_batches: Gradients in float64; step `num_steps` is the plain backward after
            `unbind()`.
        sums: Sums of these that were asked for: explaining asks for the same ones again
            and again.
    """

    scenario: Scenario
    capabilities: Capabilities
    micro_batches: MicroBatches
    sums: dict[tuple[str, int, int, tuple[int, ...]], torch.Tensor] = field(
        default_factory=dict, repr=False, compare=False
    )

    def local(
        self, spec: ParameterSpec, rank: int, step: int, micro_batches: Iterable[int]
    ) -> torch.Tensor:
        """Sum some micro-batches of one rank, in float64; not to be written into."""
        key = (spec.name, rank, step, tuple(micro_batches))
        if key not in self.sums:
            shape = local_shape(self.scenario.mesh, spec, rank)
            parts = [self.micro_batches[spec.name, rank, step, m] for m in key[3]]
            nothing = torch.zeros(shape, dtype=torch.float64)
            self.sums[key] = torch.stack([nothing, *parts]).sum(dim=0)
        return self.sums[key]

    def contributors(self, spec: ParameterSpec, rank: int) -> tuple[int, ...]:
        """List the ranks whose gradients this rank's reduced gradient contains."""
        return contributing_ranks(self.scenario.mesh, spec, rank)

    def divisor(self, spec: ParameterSpec, rank: int) -> int:
        """Return what the sum is divided by: 1, or the number of contributors."""
        mean = self.capabilities.reduction == "mean"
        return len(self.contributors(spec, rank)) if mean else 1

    def reduced(self, spec: ParameterSpec, rank: int, step: int) -> torch.Tensor:
        """Return the gradient that `wait()` owes, in float64."""
        count = agenda.num_backwards(self.scenario, step)
        parts = [
            self.local(spec, q, step, range(count))
            for q in self.contributors(spec, rank)
        ]
        return torch.stack(parts).sum(dim=0) / self.divisor(spec, rank)


@functools.lru_cache(maxsize=64)
def reference(scenario: Scenario, capabilities: Capabilities) -> Reference:
    """Make the oracle of a scenario; it plays a rank when it is first asked about it."""
    return Reference(scenario, capabilities, MicroBatches(scenario))


def trainable(scenario: Scenario) -> tuple[ParameterSpec, ...]:
    """List the parameters that receive gradients."""
    return tuple(spec for spec in scenario.parameters if spec.requires_grad)


def _plainly_used(scenario: Scenario) -> Scenario:
    """Leave to the engine nothing but products: its other features are on trial."""
    specs = (replace(spec, use=PLAIN) for spec in scenario.parameters)
    return replace(scenario, parameters=tuple(specs))


def same_part(scenario: Scenario, spec: ParameterSpec, rank: int) -> tuple[int, ...]:
    """List the ranks, of a large world the first few, whose part has this one's shape."""
    shape = local_shape(scenario.mesh, spec, rank)
    alike = (
        other
        for other in range(scenario.mesh.num_ranks)
        if local_shape(scenario.mesh, spec, other) == shape
    )
    return tuple(itertools.islice(alike, _MAX_ALIKE))
