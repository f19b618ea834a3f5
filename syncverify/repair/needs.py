"""What a scenario needs at least: reductions of single parameters, and of buckets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from syncverify.scenario.layout import local_shape, reduce_axes
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
    """

    of_parameters: int
    of_buckets: int
    num_bytes: int
    early_bytes: int

    @classmethod
    def of(cls, scenario: Scenario) -> Needs:
        """Return the needs of a scenario whose parameters are all used."""
        parameters = buckets = num_bytes = early_bytes = 0
        for rank in range(scenario.mesh.num_ranks):
            sizes = [*_sizes(scenario, rank)]
            parameters += sum(axes for _, axes, _ in sizes)
            num_bytes += sum(axes * size for _, axes, size in sizes)
            buckets += _num_buckets(sizes, scenario.bucket_cap_bytes)
            early_bytes += _full_bytes(sizes, scenario.bucket_cap_bytes)
        steps = scenario.num_steps
        totals = (parameters, buckets, num_bytes, early_bytes)
        return cls(*(total * steps for total in totals))


def _sizes(scenario: Scenario, rank: int) -> Iterator[_Size]:
    """Yield the kind, the number of mesh axes and the bytes of each reduced gradient."""
    for spec in reversed(scenario.parameters):
        axes = len(reduce_axes(scenario.mesh, spec))
        if spec.requires_grad and axes:
            kind = (spec.group, spec.effective_grad_dtype, spec.placements)
            yield kind, axes, _local_bytes(scenario, spec, rank)


def _local_bytes(scenario: Scenario, spec: ParameterSpec, rank: int) -> int:
    dtype: torch.dtype = getattr(torch, spec.effective_grad_dtype)
    return math.prod(local_shape(scenario.mesh, spec, rank)) * dtype.itemsize


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
