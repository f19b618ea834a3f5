"""Strategies for whole scenarios."""

from __future__ import annotations

import functools
import itertools
import math

import torch
from hypothesis import strategies as st

from strategies.backwards import backwards
from strategies.meshes import meshes
from strategies.parameters import parameter_lists
from strategies.steps import accumulations
from strategies.uses import uses
from syncverify.layout import local_shape
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities

_EVERYTHING_IN_ONE_BUCKET_BYTES = 2**20
# Around the size of one small parameter, and of several.
_SPLITTING_CAP_BYTES = (64, 512)


@functools.cache
def bucket_caps() -> st.SearchStrategy[int]:
    """Generate bucket caps in bytes that split and that do not; shrinks to no split."""
    splitting = [st.integers(1, limit) for limit in _SPLITTING_CAP_BYTES]
    return st.one_of(st.just(_EVERYTHING_IN_ONE_BUCKET_BYTES), *splitting)


@st.composite
def scenarios(
    draw: st.DrawFn,
    *,
    max_ranks: int = 4,
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> Scenario:
    """Generate scenarios that a subject with the given capabilities must get right.

    Shrinks toward one rank, one parameter, one step, one micro-batch.

    Args:
        draw: Provided by Hypothesis.
        max_ranks: Largest number of ranks.
        capabilities: What the subject promises.

    Returns:
        A scenario.
    """
    mesh = draw(meshes(max_ranks=max_ranks))
    parameters = draw(parameter_lists(mesh, capabilities=capabilities))
    backward = draw(backwards(capabilities=capabilities))
    beside = frozenset({f"backward={backward}"})
    return Scenario(
        mesh=mesh,
        parameters=draw(uses(parameters, beside=beside, capabilities=capabilities)),
        accumulations=draw(accumulations(varying=capabilities.varying_accumulations)),
        bucket_cap_bytes=draw(bucket_caps() | st.sampled_from(_full(mesh, parameters))),
        backward=backward,
    )


def _full(mesh: MeshSpec, parameters: tuple[ParameterSpec, ...]) -> list[int]:
    """List caps that the first parameters on rank 0 fill to the byte."""
    sizes = [
        math.prod(local_shape(mesh, spec, 0))
        * getattr(torch, spec.effective_grad_dtype).itemsize
        for spec in parameters
    ]
    return [max(1, total) for total in itertools.accumulate(sizes)]
