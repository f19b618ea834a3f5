"""Strategies for whole scenarios."""

from __future__ import annotations

from hypothesis import strategies as st

from strategies.meshes import meshes
from strategies.parameters import parameter_lists
from strategies.steps import accumulations
from syncverify.scenario import Scenario
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities

_EVERYTHING_IN_ONE_BUCKET_BYTES = 2**20
_MAX_SPLITTING_CAP_BYTES = 64


def bucket_caps() -> st.SearchStrategy[int]:
    """Generate bucket caps in bytes that split and that do not; shrinks to no split."""
    splitting = st.integers(1, _MAX_SPLITTING_CAP_BYTES)
    return st.just(_EVERYTHING_IN_ONE_BUCKET_BYTES) | splitting


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
    return Scenario(
        mesh=mesh,
        parameters=draw(parameter_lists(mesh, capabilities=capabilities)),
        accumulations=draw(accumulations(varying=capabilities.varying_accumulations)),
        bucket_cap_bytes=draw(bucket_caps()),
    )
