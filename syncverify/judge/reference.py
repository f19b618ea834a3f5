"""The reference: the right value of every gradient, computed as naive DDP.

The gradients of each rank and micro-batch come from ordinary autograd on plain tensors,
without a synchronizer. Then each parameter is summed by itself over the ranks that must
contribute.
"""

import functools
import itertools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import torch

from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.model import build_model
from syncverify.playing.program.modules.layers import naming_layer, require_finite
from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import CANCELLING, PLAIN
from syncverify.scenario.layout import (
    contributing_ranks,
    is_managed,
    local_shape,
    mesh_of,
)
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

_CPU: Final = torch.device("cpu")
_MAX_ALIKE: Final = 64  # ranks with parts of one shape: the caller plays all of these


class MicroBatchKey(NamedTuple):
    """The gradient of one parameter on one rank in one micro-batch of a step."""

    parameter: str
    rank: int
    step: int
    micro_batch: int


# An element of a gradient: its number in the flat gradient, and the parameter.
RightElement = tuple[int, str]
# Name of the parameter, global rank, step, and the micro-batches that are summed.
SumKey = tuple[str, int, int, tuple[int, ...]]


class MicroBatches(dict[MicroBatchKey, torch.Tensor]):
    """Local gradients of single micro-batches, in float64, on the CPU.

    A rank is played when one of its gradients is first read: of a world of thousands only
    a few ranks are judged.
    """

    def __init__(self, scenario: Scenario, device: torch.device = _CPU) -> None:
        super().__init__()
        self._scenario = scenario
        # Whole numbers are exact on each device, real numbers on the device of the ranks.
        self._device = _CPU if scenario.module == PLAIN else device
        self._played = set[int]()

    def __missing__(self, key: MicroBatchKey) -> torch.Tensor:
        is_rank = 0 <= key.rank < self._scenario.mesh.num_ranks
        if key.rank in self._played or not is_rank:
            raise KeyError(key)
        self.play(key.rank)
        return self[key]

    def play(self, rank: int) -> None:
        """Run all micro-batches of one rank, without a synchronizer."""
        self._played.add(rank)
        scenario, trained = self._scenario, self._scenario.trainable
        # Each use is replaced by a plain product: other uses are under test themselves.
        specs = (replace(spec, use=PLAIN) for spec in scenario.parameters)
        plain = replace(scenario, parameters=tuple(specs))
        with exact_arithmetic(self._device):
            model = build_model(plain, rank=rank, device=self._device, meshes=None)
            parameters = [model.parameters[spec.name] for spec in trained]
            for step in range(scenario.num_steps + 1):
                for m in range(step_plan.num_micro_batches(scenario, step)):
                    loss = model.loss(step=step, micro_batch=m)
                    with naming_layer(scenario.module):
                        gradients = torch.autograd.grad(
                            loss, parameters, materialize_grads=True
                        )
                    runs = step_plan.runs(scenario, rank, step, m)
                    for spec, gradient in zip(trained, gradients, strict=True):
                        exact = gradient.to(_CPU, torch.float64)
                        noun = f"on another batch, the gradient of {spec.name!r}"
                        require_finite(scenario.module, exact, noun)
                        counts = runs and not step_plan.is_frozen(scenario, spec, step)
                        key = MicroBatchKey(spec.name, rank, step, m)
                        self[key] = exact if counts else torch.zeros_like(exact)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reference:
    """The right gradients of one scenario, in float64."""

    scenario: Scenario
    capabilities: Capabilities
    # Step `num_steps` is the plain backward after `unbind()`.
    micro_batches: MicroBatches
    # Caches: sums of these gradients, since an explanation reads the same sums often; what launches
    # send (`sent.py`), since each wrong gradient asks for all launches of its rank; and the
    # elements to which values belong, by rank and moment.
    sums: dict[SumKey, torch.Tensor] = field(default_factory=dict)
    sent: dict[Hashable, Any] = field(default_factory=dict)
    owners: dict[Hashable, dict[float | str, RightElement]] = field(
        default_factory=dict
    )

    @property
    def rounds(self) -> bool:
        """Tell whether right gradients may differ by rounding: see `judge/rounding.py`.

        Those of a real module do. Whole numbers do where ranks sum them in a narrower dtype,
        unless the word `cancelling` keeps their sums exact in it.
        """
        if self.scenario.module != PLAIN:
            return True
        return bool(self.capabilities.wire_dtype) and any(
            spec.gradient != CANCELLING for spec in self.scenario.trainable
        )

    def local(
        self, spec: ParameterSpec, rank: int, step: int, micro_batches: Iterable[int]
    ) -> torch.Tensor:
        """Sum some micro-batches of one rank, in float64; do not write into the result."""
        key = (spec.name, rank, step, tuple(micro_batches))
        if key not in self.sums:
            shape = local_shape(self.scenario.mesh, spec, rank)
            keys = (MicroBatchKey(spec.name, rank, step, m) for m in key[-1])
            parts = [self.micro_batches[each] for each in keys]
            nothing = torch.zeros(shape, dtype=torch.float64)
            self.sums[key] = torch.stack([nothing, *parts]).sum(dim=0)
        return self.sums[key]

    def contributors(self, spec: ParameterSpec, rank: int) -> tuple[int, ...]:
        """List the ranks that contribute to this rank's reduced gradient."""
        return contributing_ranks(self.scenario.mesh, spec, rank)

    def divisor(self, spec: ParameterSpec, rank: int) -> int:
        """Return the divisor of the sum: 1, a declared one, or the number of contributors."""
        declared = self.capabilities.divide_factor
        if declared and is_managed(spec):
            return declared
        mean = self.capabilities.reduction == "mean"
        return len(self.contributors(spec, rank)) if mean else 1

    def reduced(self, spec: ParameterSpec, rank: int, step: int) -> torch.Tensor:
        """Return the right gradient after `wait()`, in float64."""
        return reduced_gradient(self, spec, rank, step).value()


@functools.lru_cache(maxsize=64)
def reference(
    scenario: Scenario, capabilities: Capabilities, device: torch.device = _CPU
) -> Reference:
    """Return the reference of a scenario; it plays a rank when it is first needed.

    The device is that on which the ranks played: another one rounds in another way.
    """
    return Reference(scenario, capabilities, MicroBatches(scenario, device))


@dataclass(frozen=True, slots=True)
class ExpectedGradient:
    """The right gradient of one parameter on one rank, at one point of a step."""

    reference: Reference
    spec: ParameterSpec
    rank: int
    step: int
    count: int  # of micro-batches that are accumulated so far
    ranks: tuple[int, ...]  # whose contributions it contains
    divisor: int  # of their sum: 1, a declared one, or for a mean the number of ranks

    def part(
        self, rank: int, micro_batches: Iterable[int] | None = None
    ) -> torch.Tensor:
        """Sum some micro-batches of one rank (all if None), in float64, undivided."""
        chosen = range(self.count) if micro_batches is None else micro_batches
        return self.reference.local(self.spec, rank, self.step, chosen)

    def value(self) -> torch.Tensor:
        """Return the right gradient, in float64; shape of the local part."""
        return self.reduced(self.ranks)

    def magnitude(self) -> torch.Tensor:
        """Return the sum of the magnitudes of all contributions, divided, in float64."""
        parts = [self.part(rank, [m]).abs() for rank, m in self.terms()]
        return torch.stack(parts).sum(dim=0) / self.divisor

    def total(
        self, ranks: Iterable[int], micro_batches: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Sum `part` over the given ranks, in float64, undivided."""
        parts = [self.part(rank, micro_batches) for rank in ranks]
        return torch.stack(parts).sum(dim=0)

    def reduced(
        self, ranks: Iterable[int], micro_batches: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Return what a reduction over the given ranks leaves: their sum, divided, in float64."""
        return self.total(ranks, micro_batches) / self.divisor

    def terms(self) -> list[tuple[int, int]]:
        """List rank and micro-batch of each contribution."""
        return list(itertools.product(self.ranks, range(self.count)))

    @property
    def scenario(self) -> Scenario:
        """The scenario of the reference."""
        return self.reference.scenario

    def mesh(self) -> MeshSpec:
        """Return the mesh of the parameter."""
        return mesh_of(self.scenario.mesh, self.spec)

    def may_be_none(self) -> bool:
        """Tell whether no rank contributes; then no gradient is as good as zeros."""
        place = self.spec, self.ranks, self.step, self.count
        return not step_plan.has_gradient(self.scenario, *place)

    def dtypes(self) -> set[str]:
        """Name the dtypes that the gradient may have."""
        cast = step_plan.is_cast(self.reference.scenario, self.step)
        return {self.spec.effective_grad_dtype, *(["float64"] if cast else [])}

    def comparable(self) -> tuple[int, ...]:
        """List the ranks whose local part has the same shape; of many the first ones."""
        mesh, spec = self.scenario.mesh, self.spec
        ranks, own = range(mesh.num_ranks), local_shape(mesh, spec, self.rank)
        alike = (rank for rank in ranks if local_shape(mesh, spec, rank) == own)
        return tuple(itertools.islice(alike, _MAX_ALIKE))


def reduced_gradient(
    reference: Reference, spec: ParameterSpec, rank: int, step: int
) -> ExpectedGradient:
    """Return the gradient of a rank after `wait()`."""
    count = step_plan.num_micro_batches(reference.scenario, step)
    ranks, divisor = reference.contributors(spec, rank), reference.divisor(spec, rank)
    return ExpectedGradient(reference, spec, rank, step, count, ranks, divisor)


def local_gradient(
    reference: Reference, spec: ParameterSpec, rank: int, step: int, count: int
) -> ExpectedGradient:
    """Return the sum of a rank's own first micro-batches of a step."""
    return ExpectedGradient(reference, spec, rank, step, count, (rank,), divisor=1)
