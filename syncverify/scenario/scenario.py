"""A scenario: one small distributed training run as an immutable value.

A scenario holds no tensor and no code, so it can be drawn, shrunk, printed, stored
and played on any backend. Its JSON carries a version: a reader refuses an unknown
version, and never misreads it.
"""

import hashlib
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from syncverify.errors import ScenarioFormatError
from syncverify.scenario import validation
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.specs import MeshSpec, ParameterSpec, Pasteable
from syncverify.scenario.validation import require

SCENARIO_VERSION = 2
# Fields that JSON has at their defaults too. Tokens have them at fixed places, but `version`.
_ALWAYS_WRITTEN = frozenset(
    {"dtype", "grad_dtype", "requires_grad", "group", "version"}
)


@dataclass(frozen=True, slots=True, repr=False)
class Scenario(Pasteable):
    """One training run of all ranks, from `bind()` to `unbind()`.

    Attributes:
        mesh: Ranks and their axes.
        parameters: Parameters in registration order.
        accumulations: Number of micro-batches, one entry per optimizer step.
        bucket_cap_bytes: Upper bound on one bucket, in bytes of the gradients of a rank.
        events: Step events, one word of the topic `event` per step; empty if all are plain.
        launch: Streams on which the caller works, a word of its topic.
        readiness: Order in which gradients become ready, a word of its topic.
        backward: Way to run backward, a word of its topic.
        module: Real module that owns the parameters, a word of its topic, or a layer's name.
        synchronizers: Number of synchronizers, a word of its topic.
        evaluation: Forwards without a backward, a word of its topic.
        replicas: Values of a parameter's replicas at `bind()`, a word of its topic.
        update: Moment at which parameters are updated, a word of its topic.
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
    synchronizers: str = "one"
    evaluation: str = "none"
    replicas: str = "equal"
    update: str = "after_wait"
    version: int = SCENARIO_VERSION

    def __post_init__(self) -> None:
        """Refuse a scenario that no rank program can play."""
        counts = (*self.accumulations, self.bucket_cap_bytes)
        validation.check_types(self.mesh, self.parameters, counts)
        validation.check_bounds(
            self.mesh, self.parameters, self.accumulations, self.bucket_cap_bytes
        )
        validation.check_mesh(self.mesh)
        require(len(self.accumulations) >= 1, "a scenario has at least one step")
        require(all(n >= 1 for n in self.accumulations), "accumulations are >= 1")
        require(self.bucket_cap_bytes >= 1, "bucket_cap_bytes is >= 1")
        validation.check_words(self, self.parameters)
        validation.check_parameters(self.parameters, self.mesh)
        validation.check_step_events(self.events, self.num_steps)
        require(
            any(parameter.requires_grad for parameter in self.parameters),
            "at least one parameter is trainable",
        )

    def step_event(self, step: int) -> str:
        """Return the event of a step; the backward after `unbind()` counts as a plain one."""
        return self.events[step] if step < len(self.events) else PLAIN

    @property
    def num_steps(self) -> int:
        """Count the optimizer steps."""
        return len(self.accumulations)

    @property
    def trainable(self) -> tuple[ParameterSpec, ...]:
        """List the parameters that receive gradients."""
        return tuple(spec for spec in self.parameters if spec.requires_grad)

    @property
    def groups(self) -> tuple[tuple[ParameterSpec, ...], ...]:
        """List the parameters by group, in registration order; no group is empty."""
        indices = sorted({parameter.group for parameter in self.parameters})
        return tuple(
            tuple(spec for spec in self.parameters if spec.group == index)
            for index in indices
        )

    def digest(self) -> bytes:
        """Return 16 bytes that stand for the scenario where many are remembered."""
        return hashlib.blake2b(repr(self).encode(), digest_size=16).digest()

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists that `from_json` reads back.

        Most scenarios leave the fields of `rare_fields` at their defaults, and their JSON
        leaves them out.
        """
        return dict(_listed(self))

    @classmethod
    def from_json(cls, data: object) -> "Scenario":
        """Return the scenario of a result of `to_json`, or of its parsed JSON text.

        Raises:
            ScenarioFormatError: The data is not a scenario of a known version.
        """
        if not isinstance(data, dict) or "version" not in data:
            raise ScenarioFormatError("expected a scenario object with a version")
        if data["version"] != SCENARIO_VERSION:
            raise ScenarioFormatError(
                f"scenario version {data['version']!r} is not supported "
                f"(this syncverify reads version {SCENARIO_VERSION})"
            )
        try:
            return scenario_of(data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ScenarioFormatError(f"malformed scenario: {error!r}") from error


def scenario_of(data: dict[str, Any]) -> Scenario:
    """Return the scenario of plain dicts and lists; errors of their types are as they come."""
    words = {name: data[name] for name in SCENARIO_WORDS if name in data}
    words["events"] = tuple(words.get("events", ()))
    mesh = data["mesh"]
    of_mesh = {name: mesh[name] for name in MESH_WORDS if name in mesh}
    return Scenario(
        mesh=MeshSpec(tuple(mesh["shape"]), tuple(mesh["axis_names"]), **of_mesh),
        parameters=tuple(_parameter(entry) for entry in data["parameters"]),
        accumulations=tuple(data["accumulations"]),
        bucket_cap_bytes=data["bucket_cap_bytes"],
        **words,
    )


def rare_fields(kind: type) -> dict[str, Any]:
    """Return the fields that most scenarios leave at their defaults, with the defaults."""
    return {
        each.name: each.default
        for each in fields(kind)
        if each.default is not MISSING and each.name not in _ALWAYS_WRITTEN
    }


# Tokens and JSON have the fields in this order.
MESH_WORDS = (*rare_fields(MeshSpec),)
SCENARIO_WORDS = (*rare_fields(Scenario),)
PARAMETER_WORDS = (*rare_fields(ParameterSpec),)


def _listed(value: Any) -> Any:
    """Return plain dicts and lists, without rare fields at their defaults."""
    if isinstance(value, tuple):
        return [*map(_listed, value)]
    if not is_dataclass(value):
        return value
    known = {each.name: getattr(value, each.name) for each in fields(value)}
    rare = rare_fields(type(value)).items()
    return {
        name: _listed(each) for name, each in known.items() if (name, each) not in rare
    }


def _parameter(entry: dict[str, Any]) -> ParameterSpec:
    placements = entry["placements"]
    return ParameterSpec(
        **{
            **entry,
            "global_shape": tuple(entry["global_shape"]),
            "placements": None if placements is None else tuple(placements),
        }
    )
