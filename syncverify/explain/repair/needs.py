"""The least reductions that a scenario needs: of single parameters, and of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syncverify.scenario.layout import local_bytes, reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec

# Kind of a gradient, number of mesh axes over which it is reduced, and its bytes.
_Size = tuple[tuple[object, ...], int, int]


@dataclass(frozen=True, slots=True)
class Needs:
    """Reductions that a scenario needs, summed over all ranks and steps.

    Attributes:
        of_parameters: Number of reductions where each parameter goes alone.
        of_buckets: Number where buckets are filled up to the cap, one after the other.
        num_bytes: Bytes that they take in.
        early_bytes: Those of them that full buckets have, which need not wait for the end of
            backward; of each kind of parameters, up to the cap may stay for the last bucket.
        full_at: Mean share of backward that is over when such a bucket is full, by bytes; the
            gradients come from the last parameter to the first, and each takes as long.
        most_axes: Largest number of axes over which one gradient is reduced.
    """

    of_parameters: int
    of_buckets: int
    num_bytes: int
    early_bytes: int
    full_at: float = 1.0
    most_axes: int = 1

    @classmethod
    def of(cls, scenario: Scenario) -> Needs:
        """Return the needs of a scenario whose parameters are all used."""
        parameters = buckets = num_bytes = early_bytes = 0
        waited = 0.0
        for rank in range(scenario.mesh.num_ranks):
            sizes = [*_sizes(scenario, rank)]
            parameters += sum(axes for _, axes, _ in sizes)
            num_bytes += sum(axes * size for _, axes, size in sizes)
            buckets += _num_buckets(sizes, scenario.bucket_cap_bytes)
            early_bytes += _full_bytes(sizes, scenario.bucket_cap_bytes)
            waited += sum(size * share for size, share in _buckets(scenario, rank))
        steps = scenario.num_steps
        return cls(
            of_parameters=parameters * steps,
            of_buckets=buckets * steps,
            num_bytes=num_bytes * steps,
            early_bytes=early_bytes * steps,
            full_at=waited / num_bytes if num_bytes else 1.0,
            most_axes=max((axes for _, axes, _ in sizes), default=1),
        )


def _sizes(scenario: Scenario, rank: int) -> Iterator[_Size]:
    """Yield the kind, the number of mesh axes and the bytes of each reduced gradient."""
    for spec in reversed(scenario.parameters):
        axes = len(reduce_axes(scenario.mesh, spec))
        if spec.requires_grad and axes:
            yield _kind(spec), axes, local_bytes(scenario.mesh, spec, rank)


def _buckets(scenario: Scenario, rank: int) -> Iterator[tuple[int, float]]:
    """Yield the bytes of each bucket on all its axes, and the share of backward at its end."""
    trained = [spec for spec in reversed(scenario.parameters) if spec.requires_grad]
    filling = dict[object, tuple[int, int, int]]()  # bytes, axes, last position
    for position, spec in enumerate(trained, start=1):
        axes = len(reduce_axes(scenario.mesh, spec))
        if not axes:
            continue
        kind, size = _kind(spec), local_bytes(scenario.mesh, spec, rank)
        filled, _, last = filling.get(kind, (0, axes, 0))
        if filled and filled + size > scenario.bucket_cap_bytes:
            yield axes * filled, last / len(trained)
            filled = 0
        filling[kind] = (filled + size, axes, position)
    for filled, axes, last in filling.values():
        yield axes * filled, last / len(trained)


def _kind(spec: ParameterSpec) -> tuple[object, ...]:
    return (spec.group, spec.effective_grad_dtype, spec.placements, spec.on_mesh)


def _num_buckets(sizes: list[_Size], cap: int) -> int:
    """Count the reductions of buckets of one kind each that are filled up to the cap."""
    count, filled = 0, dict[object, int]()
    for kind, axes, size in sizes:
        if kind not in filled or filled[kind] + size > cap:
            count, filled[kind] = count + axes, 0
        filled[kind] += size
    return count


def _full_bytes(sizes: list[_Size], cap: int) -> int:
    """Return the bytes of all parameters but those that may be in the last bucket of a kind."""
    total, axes_of = dict[object, int](), dict[object, int]()
    for kind, axes, size in sizes:
        total[kind], axes_of[kind] = total.get(kind, 0) + size, axes
    return sum(axes_of[kind] * max(0, size - cap) for kind, size in total.items())
