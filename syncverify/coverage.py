"""What the scenarios of a search contained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from syncverify.coordinate_classes import representatives
from syncverify.layout import local_shape, reduce_axes
from syncverify.scenario import REPLICATE, ParameterSpec, Scenario


class Coverage:
    """Counts scenarios by the features that they contain.

    Attributes:
        num_scenarios: Scenarios counted.
    """

    def __init__(self) -> None:
        self.num_scenarios = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, scenario: Scenario) -> None:
        """Count one scenario, each of its features once."""
        self.num_scenarios += 1
        self._counts.update(set(features(scenario)))

    def table(self) -> dict[str, dict[str, int]]:
        """Return the number of scenarios by topic and feature, zeros included."""
        seen = {topic: dict.fromkeys(names, 0) for topic, names in _EXPECTED.items()}
        for (topic, name), count in sorted(self._counts.items()):
            seen.setdefault(topic, {})[name] = count
        return seen


# Listed so that what never occurred shows as a zero instead of not at all.
_EXPECTED: dict[str, tuple[str, ...]] = {
    "ranks": (),
    "mesh": ("1 axis", "2 axes", "axis of size 1"),
    "parameters": (
        "replicated",
        "sharded",
        "uneven or empty shard",
        "plain",
        "frozen",
        "scalar",
    ),
    "dtype": ("float32", "bfloat16", "float16", "own gradient dtype"),
    "reduction": ("none", "over 1 axis", "over 2 axes"),
    "accumulations": (),
    "steps": (),
    "buckets": ("cap splits", "cap does not split", "2 groups"),
}


def features(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield (topic, feature) pairs of one scenario; pairs may repeat."""
    mesh = scenario.mesh
    yield "ranks", str(mesh.num_ranks)
    yield "mesh", "1 axis" if len(mesh.shape) == 1 else f"{len(mesh.shape)} axes"
    if 1 in mesh.shape:
        yield "mesh", "axis of size 1"
    yield "steps", str(scenario.num_steps)
    for count in scenario.accumulations:
        yield "accumulations", str(count)
    if len(set(scenario.accumulations)) > 1:
        yield "accumulations", "varying"
    if len(scenario.groups) > 1:
        yield "buckets", f"{len(scenario.groups)} groups"
    for spec in scenario.parameters:
        yield from _parameter_features(scenario, spec)
    yield "buckets", "cap splits" if _cap_splits(scenario) else "cap does not split"


def _parameter_features(
    scenario: Scenario, spec: ParameterSpec
) -> Iterator[tuple[str, str]]:
    yield "dtype", spec.dtype
    if spec.effective_grad_dtype != spec.dtype:
        yield "dtype", "own gradient dtype"
    if not spec.global_shape:
        yield "parameters", "scalar"
    if not spec.requires_grad:
        yield "parameters", "frozen"
    axes = len(reduce_axes(scenario.mesh, spec))
    yield "reduction", {0: "none", 1: "over 1 axis"}.get(axes, f"over {axes} axes")
    if spec.placements is None:
        yield "parameters", "plain"
    elif set(spec.placements) == {REPLICATE}:
        yield "parameters", "replicated"
    else:
        yield "parameters", "sharded"
        shapes = {
            local_shape(scenario.mesh, spec, rank) for rank in representatives(scenario)
        }
        if len(shapes) > 1:
            yield "parameters", "uneven or empty shard"


def _cap_splits(scenario: Scenario) -> bool:
    """Tell whether the trainable parameters of some group exceed the cap on rank 0."""
    widths = {"float32": 4, "float64": 8}
    for group in scenario.groups:
        total = 0
        for spec in group:
            numel = 1
            for size in local_shape(scenario.mesh, spec, 0):
                numel *= size
            total += (
                spec.requires_grad * numel * widths.get(spec.effective_grad_dtype, 2)
            )
        if total > scenario.bucket_cap_bytes:
            return True
    return False
