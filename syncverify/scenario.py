"""A scenario: one small distributed training run as an immutable value.

A scenario holds no tensor and no code, so it can be drawn, shrunk, printed, stored
and played on any backend. Its JSON carries a version: a reader refuses a version that
it does not know rather than misread it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Self

from syncverify.errors import ScenarioFormatError

SCENARIO_VERSION = 1
DTYPES = ("float32", "bfloat16", "float16")
REPLICATE = "R"


def shard(dim: int) -> str:
    """Spell the placement that splits a tensor along one of its dims."""
    return f"S{dim}"


@dataclass(frozen=True, slots=True)
class MeshSpec:
    """A device mesh over all ranks, in row-major rank order.

    Attributes:
        shape: Number of ranks along each mesh axis.
        axis_names: One name per mesh axis.
    """

    shape: tuple[int, ...]
    axis_names: tuple[str, ...]

    @property
    def num_ranks(self) -> int:
        """Count the ranks of the mesh."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter of the model.

    Attributes:
        name: Name used in every message.
        global_shape: Shape of the whole tensor; a plain parameter has it on each rank.
        placements: One of `R` (replicated) or `S<dim>` (sharded along a tensor dim) per
            mesh axis, or None for a plain tensor, which no axis reduces.
        dtype: Name of the parameter's dtype.
        grad_dtype: Name of the gradient's dtype; None means the parameter's own.
        requires_grad: False for a frozen parameter.
        group: Index of the parameter group that lists it.
    """

    name: str
    global_shape: tuple[int, ...]
    placements: tuple[str, ...] | None
    dtype: str = "float32"
    grad_dtype: str | None = None
    requires_grad: bool = True
    group: int = 0

    @property
    def effective_grad_dtype(self) -> str:
        """Name the dtype in which gradients accumulate."""
        return self.grad_dtype or self.dtype


@dataclass(frozen=True, slots=True)
class Scenario:
    """What every rank does, from bind to unbind.

    Attributes:
        mesh: Ranks and their axes.
        parameters: In registration order.
        accumulations: Micro-batches of each optimizer step, one entry per step.
        bucket_cap_bytes: Upper bound on one bucket, in bytes of gradient dtype over
            local elements.
        version: Version of this format.
    """

    mesh: MeshSpec
    parameters: tuple[ParameterSpec, ...]
    accumulations: tuple[int, ...]
    bucket_cap_bytes: int
    version: int = SCENARIO_VERSION

    def __post_init__(self) -> None:
        """Refuse values that no rank program could play."""
        self._validate_types()
        _require(len(self.mesh.shape) >= 1, "a mesh has at least one axis")
        _require(
            len(self.mesh.axis_names)
            == len(set(self.mesh.axis_names))
            == len(self.mesh.shape),
            "each mesh axis has a name of its own",
        )
        _require(
            all(size >= 1 for size in self.mesh.shape), "mesh axes have sizes >= 1"
        )
        _require(len(self.accumulations) >= 1, "a scenario has at least one step")
        _require(all(n >= 1 for n in self.accumulations), "accumulations are >= 1")
        _require(self.bucket_cap_bytes >= 1, "bucket_cap_bytes is >= 1")
        names = [parameter.name for parameter in self.parameters]
        _require(len(set(names)) == len(names), "parameter names are unique")
        for parameter in self.parameters:
            self._validate_parameter(parameter)
        _require(
            any(parameter.requires_grad for parameter in self.parameters),
            "at least one parameter is trainable",
        )

    def _validate_types(self) -> None:
        """Refuse what JSON lets through: `True` and 2.5 pass every comparison below."""
        counts = [*self.mesh.shape, *self.accumulations, self.bucket_cap_bytes]
        names: list[object] = list(self.mesh.axis_names)
        for parameter in self.parameters:
            counts += [*parameter.global_shape, parameter.group]
            names.append(parameter.name)
            _require(
                type(parameter.requires_grad) is bool, "requires_grad is true or false"
            )
        _require(all(type(n) is int for n in counts), "sizes are whole numbers")
        _require(all(type(n) is str for n in names), "names are strings")

    def _validate_parameter(self, parameter: ParameterSpec) -> None:
        _require(
            parameter.dtype in DTYPES, f"dtype of {parameter.name!r} is one of {DTYPES}"
        )
        _require(
            parameter.effective_grad_dtype in DTYPES,
            f"grad_dtype of {parameter.name!r} is one of {DTYPES}",
        )
        _require(min(parameter.global_shape, default=0) >= 0, "sizes are >= 0")
        _require(parameter.group >= 0, "group indices are >= 0")
        if parameter.placements is None:
            return
        legal = {REPLICATE, *(shard(dim) for dim in range(len(parameter.global_shape)))}
        _require(
            len(parameter.placements) == len(self.mesh.shape)
            and set(parameter.placements) <= legal,
            f"{parameter.name!r} has one placement of {sorted(legal)} per mesh axis, "
            f"not {parameter.placements}",
        )

    @property
    def num_steps(self) -> int:
        """Count the optimizer steps."""
        return len(self.accumulations)

    @property
    def groups(self) -> tuple[tuple[ParameterSpec, ...], ...]:
        """List the parameters by group, in registration order; no group is empty."""
        indices = sorted({parameter.group for parameter in self.parameters})
        return tuple(
            tuple(
                parameter for parameter in self.parameters if parameter.group == index
            )
            for index in indices
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists that `from_json` reads back."""
        listed: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return listed

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read a scenario back.

        Args:
            data: What `to_json` returned, or its parsed JSON text.

        Returns:
            The scenario.

        Raises:
            ScenarioFormatError: The data is no scenario of a known version.
        """
        if not isinstance(data, dict) or "version" not in data:
            raise ScenarioFormatError("expected a scenario object with a version")
        if data["version"] != SCENARIO_VERSION:
            raise ScenarioFormatError(
                f"scenario version {data['version']!r} is not supported "
                f"(this syncverify reads version {SCENARIO_VERSION})"
            )
        try:
            return cls(
                mesh=MeshSpec(
                    tuple(data["mesh"]["shape"]), tuple(data["mesh"]["axis_names"])
                ),
                parameters=tuple(_parameter(entry) for entry in data["parameters"]),
                accumulations=tuple(data["accumulations"]),
                bucket_cap_bytes=data["bucket_cap_bytes"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ScenarioFormatError(f"malformed scenario: {error!r}") from error


def _parameter(entry: dict[str, Any]) -> ParameterSpec:
    placements = entry["placements"]
    return ParameterSpec(
        **{
            **entry,
            "global_shape": tuple(entry["global_shape"]),
            "placements": None if placements is None else tuple(placements),
        }
    )


def _require(condition: object, expectation: str) -> None:
    if not condition:
        raise ScenarioFormatError(f"malformed scenario: {expectation}")
