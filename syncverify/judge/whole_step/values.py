"""The values of a training step, as a rank has them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

import torch

from syncverify.judge.whole_step.shards import KeptParts
from syncverify.trace.source_lines import SourceLine

# Name of a parameter to its tensor, whole unless an ordinary tensor is a shard; None where it
# has no gradient.
NamedTensors = Mapping[str, torch.Tensor | None]
ByRank = Mapping[int, torch.Tensor | None]  # a value as each rank has it
# Options of an optimizer by name, such as the learning rate, of each parameter.
Options = Mapping[str, Mapping[str, object]]


class StateName(str):
    """Name of a tensor that an optimizer keeps of a parameter, such as `up.weight exp_avg`.

    Names of parameters may have spaces, so no reader can find the parameter in the text.
    """

    parameter: str

    @classmethod
    def of(cls, parameter: str, key: str) -> Self:
        """Make the name of the tensor that an optimizer keeps of a parameter, by its key."""
        name = cls(f"{parameter} {key}")
        name.parameter = parameter
        return name


def parameter_of(name: str) -> str:
    """Return the name of the parameter to which a value belongs."""
    return name.parameter if isinstance(name, StateName) else name


class Quantity(Enum):
    """A kind of value, in the order in which a step makes them; the value is its name."""

    START = "parameter before the first step"
    GRADIENT = "gradient"
    NORM = "gradient norm"
    STEPPED = "gradient that the optimizer reads"
    RETURNED = "value that the step returns"
    SCALE = "scale of the loss"
    SKIPPED = "number of optimizer steps"
    STATE = "state of the optimizer"
    PARAMETER = "parameter after the step"
    LOADED = "parameter after loading"
    LOADED_STATE = "state of the optimizer after loading"
    LOADED_RATE = "learning rate after loading"
    LOADED_SCALE = "scale of the loss after loading"
    LOADED_GENERATOR = "state of torch's generator after loading"


@dataclass(frozen=True, slots=True)
class AppliedFunction:
    """An autograd function of the program in the graph of a loss."""

    name: str  # of its class
    lines: tuple[SourceLine, ...]  # that applies it, and the first of its backward
    behind: tuple[frozenset[str], ...]  # the parameters that each input depends on


@dataclass(frozen=True, slots=True)
class StepValues:
    """The values of one step, as a rank has them."""

    # Tensors by quantity and name. Scalars have no dimension.
    tensors: Mapping[Quantity, NamedTensors]
    # Sum of the squares of the rank's own part of each gradient.
    local_squares: Mapping[str, float] = field(default_factory=dict)
    # Learning rate of each parameter after the step.
    rates: NamedTensors = field(default_factory=dict)
    # Whether some parameters are clipped apart from others, or not at all.
    clips_parts: bool = False
    # The parameters of the optimizers of this rank that step.
    updated: frozenset[str] = frozenset()
    options: Options = field(default_factory=dict)
    draws: bool = False
    # Parameters as the optimizer left them, where the step wrote others in their place.
    left: NamedTensors = field(default_factory=dict)
    # Parameters that an optimizer may update from a tensor that is not their gradient, as it has
    # tensors of its own.
    read_elsewhere: frozenset[str] = frozenset()
    copied: frozenset[str] = frozenset()  # parameters that an optimizer has a copy of
    # Largest norm of torch's clipping; None where it was not called, or with several norms.
    max_norm: float | None = None
    backwards: tuple[SourceLine, ...] = ()
    # Nearest to the loss first; none unless they are noted.
    functions: tuple[AppliedFunction, ...] = ()
    # Parameters that no optimizer has, as the backward sees them.
    used: NamedTensors = field(default_factory=dict)
    # Options that all tensors of the optimizers share that are no parameters.
    own_options: Mapping[str, object] = field(default_factory=dict)

    @property
    def parameters(self) -> NamedTensors:
        """The parameters after the step."""
        return self.tensors.get(Quantity.PARAMETER, {})

    @property
    def num_steps(self) -> float:
        """Number of steps of the optimizer."""
        number = self.tensors[Quantity.SKIPPED]["steps"]
        assert number is not None
        return float(number)

    def options_of(self, name: str) -> Mapping[str, object]:
        """Return the options that update a parameter, also by way of a flat slice."""
        own = self.own_options if name in self.read_elsewhere else {}
        return self.options.get(name, own)


@dataclass(frozen=True, slots=True)
class RankValues:
    """The values of a training, as a rank has them."""

    start: NamedTensors
    steps: tuple[StepValues, ...]
    batches: tuple[Any, ...]
    split_over: Mapping[str, frozenset[str]]
    frozen: frozenset[str] = frozenset()
    # First name of each parameter of the plain model, by all of its names.
    first_names: Mapping[str, str] = field(default_factory=dict)
    # Whether the scaler unscaled, which puts infinity or NaN into a gradient as the variation
    # says.
    is_poisoned: bool = False
    # Whether the scaled loss is infinity as the variation says.
    has_infinite_loss: bool = False
    # Parts of tensors of a mesh, which are put together after the run.
    kept: KeptParts = field(default_factory=dict)
    # Options of the optimizers before the first step.
    options: Options = field(default_factory=dict)
    # Dtypes to which operators rounded tensors of a higher dtype.
    lowered: frozenset[torch.dtype] = frozenset()
    # Dtypes below float64 of scalars that were rounded, or that the host read.
    lowered_scalars: frozenset[torch.dtype] = frozenset()
    # Numbers of the steps in which a value of float16 overflowed.
    overflows: frozenset[int] = frozenset()
    # Parameters of the last step that only a next forward would gather.
    late: frozenset[str] = frozenset()

    @property
    def scales(self) -> bool:
        """Tell whether a scaler multiplies the loss."""
        return any(each.tensors.get(Quantity.SCALE) for each in self.steps)

    @property
    def num_steps(self) -> float:
        """Number of steps of the optimizer."""
        return sum(each.num_steps for each in self.steps)

    def tensors(self, quantity: Quantity, step: int) -> NamedTensors:
        """Return the tensors of a quantity in a step."""
        if quantity is Quantity.START:
            return self.start
        return self.steps[step].tensors.get(quantity, {})

    def parameters_before(self, step: int) -> NamedTensors:
        """Return the parameters before a step."""
        if step == 0:
            return self.start
        return self.steps[step - 1].parameters

    def shown_tensors(
        self, quantities: Collection[Quantity] = (*Quantity,)
    ) -> Iterator[torch.Tensor]:
        """Yield the values of all steps, of some quantities."""
        for step in self.steps:
            for quantity, named in step.tensors.items():
                listed = named.values() if quantity in quantities else ()
                yield from (each for each in listed if each is not None)
