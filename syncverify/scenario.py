"""A scenario: one small distributed training run as an immutable value.

A scenario holds no tensor and no code, so it can be drawn, shrunk, printed, stored
and played on any backend. Its JSON carries a version: a reader refuses a version that
it does not know rather than misread it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from syncverify import vocabulary
from syncverify.errors import ScenarioFormatError
from syncverify.vocabulary import PLAIN

SCENARIO_VERSION = 2
DTYPES = ("float32", "bfloat16", "float16", "float64")
REPLICATE = "R"
PARTIAL = "P"
ABSENT = "-"
# What most scenarios leave at its default, and their JSON leaves out then.
SCENARIO_WORDS = ("events", "launch", "readiness", "backward", "module")
PARAMETER_WORDS = ("num_listed", "memory_format", "used", "use")


def shard(dim: int) -> str:
    """Spell the placement that splits a tensor along one of its dims."""
    return f"S{dim}"


def strided_shard(dim: int) -> str:
    """Spell the placement of an axis that cuts what later axes cut before it.

    torch's `_StridedShard`: FSDP over tensor parallelism.

    Returns:
        The placement's code.
    """
    return f"_S{dim}"


def sharded_dim(placement: str) -> int | None:
    """Return the tensor dim that a placement cuts, or None."""
    return int(placement.lstrip("_S")) if "S" in placement else None


@dataclass(frozen=True, slots=True)
class MeshSpec:
    """A device mesh over all ranks, in row-major rank order.

    Attributes:
        shape: Number of ranks along each mesh axis.
        axis_names: One name per mesh axis; none for a mesh without names.
    """

    shape: tuple[int, ...]
    axis_names: tuple[str, ...]

    @property
    def num_ranks(self) -> int:
        """Count the ranks of the mesh."""
        return math.prod(self.shape)


def num_pieces(mesh: MeshSpec, placements: tuple[str, ...], dim: int) -> int:
    """Count into how many pieces all axes together cut a tensor dim."""
    return math.prod(
        size
        for size, code in zip(mesh.shape, placements, strict=True)
        if sharded_dim(code) == dim
    )


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter of the model.

    Attributes:
        name: Name used in every message.
        global_shape: Shape of the whole tensor; a plain parameter has it on each rank.
        placements: Per mesh axis one of `R` (replicated), `P` (replicated, with a gradient
            that arrives as `Partial`), `S<dim>` (sharded along a tensor dim), `_S<dim>`
            (strided), or `-` (no axis of this parameter's mesh, which is a sub-mesh). None
            for a plain tensor, which no axis reduces.
        dtype: Name of the parameter's dtype.
        grad_dtype: Name of the gradient's dtype; None means the parameter's own.
        requires_grad: False for a frozen parameter.
        group: Index of the parameter group that lists it.
        num_listed: How often its group lists it.
        memory_format: How its local part lies in memory; of `MEMORY_FORMATS`.
        used: Whose losses depend on it; of `USED`.
        use: How they do; of `USES`.
    """

    name: str
    global_shape: tuple[int, ...]
    placements: tuple[str, ...] | None
    dtype: str = "float32"
    grad_dtype: str | None = None
    requires_grad: bool = True
    group: int = 0
    num_listed: int = 1
    memory_format: str = "contiguous"
    used: str = "always"
    use: str = PLAIN

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
        events: What is special about each step, of `EVENTS`; empty if nothing is.
        launch: On which streams the caller works; of `LAUNCHES`.
        readiness: In which order gradients become ready; of `READINESS`.
        backward: How backward is run; of `BACKWARDS`.
        module: Real module whose parameters these are; of `MODULES`, or `module:attribute`
            of a `syncverify.modules.Model`.
        version: Version of this format.
    """

    mesh: MeshSpec
    parameters: tuple[ParameterSpec, ...]
    accumulations: tuple[int, ...]
    bucket_cap_bytes: int
    events: tuple[str, ...] = ()
    launch: str = "current_stream"
    readiness: str = "same"
    backward: str = PLAIN
    module: str = PLAIN
    version: int = SCENARIO_VERSION

    def __post_init__(self) -> None:
        """Refuse values that no rank program could play."""
        self._validate_types()
        _require(len(self.mesh.shape) >= 1, "a mesh has at least one axis")
        _require(
            len(set(self.mesh.axis_names)) == len(self.mesh.axis_names)
            and len(self.mesh.axis_names) in {0, len(self.mesh.shape)},
            "each mesh axis has a name of its own, or none has a name",
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
        self._validate_words()
        _require(
            any(parameter.requires_grad for parameter in self.parameters),
            "at least one parameter is trainable",
        )

    def _validate_types(self) -> None:
        """Refuse what JSON lets through: `True` and 2.5 pass every comparison below."""
        counts = [*self.mesh.shape, *self.accumulations, self.bucket_cap_bytes]
        names: list[object] = list(self.mesh.axis_names)
        for parameter in self.parameters:
            counts += [*parameter.global_shape, parameter.group, parameter.num_listed]
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
        _require(parameter.num_listed >= 1, "parameters are listed at least once")
        fewest_dims = {"transposed": 2, "channels_last": 4}
        _require(
            len(parameter.global_shape) >= fewest_dims.get(parameter.memory_format, 0),
            f"{parameter.name!r} has dims enough to be {parameter.memory_format}",
        )
        if parameter.placements is None:
            return
        dims = range(len(parameter.global_shape))
        legal = {
            REPLICATE,
            PARTIAL,
            ABSENT,
            *map(shard, dims),
            *map(strided_shard, dims),
        }
        _require(
            len(parameter.placements) == len(self.mesh.shape)
            and set(parameter.placements) <= legal,
            f"{parameter.name!r} has one placement of {sorted(legal)} per mesh axis, "
            f"not {parameter.placements}",
        )
        _require(
            ABSENT not in parameter.placements
            or (self.mesh.axis_names and set(parameter.placements) != {ABSENT}),
            f"{parameter.name!r} lives on some axis of a mesh with names: others have no "
            "sub-meshes",
        )
        for axis in range(len(self.mesh.shape)):
            self._validate_strided(parameter, parameter.placements[axis:], axis)

    def _validate_strided(
        self, parameter: ParameterSpec, codes: tuple[str, ...], axis: int
    ) -> None:
        dim = sharded_dim(codes[0])
        if dim is None or codes[0] != strided_shard(dim):
            return
        _require(
            shard(dim) in codes[1:],
            f"an axis after axis {axis} cuts dim {dim} of {parameter.name!r} first",
        )
        pieces = num_pieces(self.mesh, parameter.placements or (), dim)
        _require(
            parameter.global_shape[dim] % pieces == 0,
            f"dim {dim} of {parameter.name!r} is strided and divides by {pieces}",
        )

    def _validate_words(self) -> None:
        _require(
            not self.events or len(self.events) == self.num_steps,
            "events are as many as steps, or none",
        )
        _require(set(self.events) != {PLAIN}, "events are left out where all are plain")
        words = [("event", event, vocabulary.EVENTS) for event in self.events]
        words.append(("launch", self.launch, vocabulary.LAUNCHES))
        words.append(("readiness", self.readiness, vocabulary.READINESS))
        words.append(("backward", self.backward, vocabulary.BACKWARDS))
        if ":" not in self.module:  # those of others have no word
            words.append(("module", self.module, vocabulary.MODULES))
        for spec in self.parameters:
            words.append(("use", spec.use, vocabulary.USES))
            words.append(("used", spec.used, vocabulary.USED))
            formats = vocabulary.MEMORY_FORMATS
            words.append(("memory_format", spec.memory_format, formats))
        for topic, word, known in words:
            _require(word in known, f"{topic} is one of {tuple(known)}, not {word!r}")

    def event(self, step: int) -> str:
        """Return what is special about a step, or about what follows the last one."""
        return self.events[step] if step < len(self.events) else PLAIN

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
        """Return plain dicts and lists that `from_json` reads back.

        What is rarely used and as in a plain training step is left out.
        """
        listed: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        _leave_out_defaults(listed, Scenario)
        for entry in listed["parameters"]:
            _leave_out_defaults(entry, ParameterSpec)
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
                events=tuple(data.get("events", ())),
                **{key: data[key] for key in SCENARIO_WORDS[1:] if key in data},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ScenarioFormatError(f"malformed scenario: {error!r}") from error


def _leave_out_defaults(entry: dict[str, Any], kind: type) -> None:
    defaults = {field.name: field.default for field in fields(kind)}
    for name in (*SCENARIO_WORDS, *PARAMETER_WORDS):
        if name in entry and name in defaults:
            default = [] if defaults[name] == () else defaults[name]
            if entry[name] == default:
                del entry[name]


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
