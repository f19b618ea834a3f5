"""Strategies for whole scenarios."""

from __future__ import annotations

import functools

from hypothesis import strategies as st

from strategies.backwards import backwards
from strategies.bucket_caps import bucket_caps_for
from strategies.crowds import crowded
from strategies.events import events
from strategies.launches import launches
from strategies.meshes import meshes
from strategies.modules import module_parameter_lists, modules
from strategies.parameters import parameter_lists
from strategies.readiness import readiness_orders
from strategies.steps import accumulations
from strategies.usage import usages
from strategies.uses import uses
from syncverify.features import ALL_BEYOND, of_parameter, without_excuses
from syncverify.scenario import MeshSpec, Scenario
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities
from syncverify.vocabulary import PLAIN


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
    capabilities = draw(_asked(capabilities))
    mesh = draw(_meshes(max_ranks, capabilities))
    module = draw(modules(mesh, capabilities=capabilities))
    parameters = draw(parameter_lists(mesh, capabilities=capabilities))
    counts = draw(accumulations(varying=capabilities.varying_accumulations))
    special = {"=".join(each) for spec in parameters for each in of_parameter(spec)}
    happening = draw(
        events(len(counts), beside=frozenset(special), capabilities=capabilities)
    )
    launch = draw(launches(capabilities=capabilities))
    beside = {f"launch={launch}", *(f"event={event}" for event in happening)}
    backward = draw(backwards(beside=frozenset(beside), capabilities=capabilities))
    parameters = draw(usages(parameters, capabilities=capabilities))
    used = uses(
        parameters,
        beside=frozenset({f"backward={backward}"}),
        capabilities=capabilities,
    )
    scenario = Scenario(
        mesh=mesh,
        parameters=draw(used),
        accumulations=counts,
        # Whoever promises plain steps alone is searched with plain caps, as ever.
        bucket_cap_bytes=draw(
            bucket_caps_for(
                mesh, parameters, near_misses=not capabilities.outside >= ALL_BEYOND
            )
        ),
        events=happening,
        launch=launch,
        backward=backward,
        readiness=draw(readiness_orders(capabilities=capabilities)),
    )
    if module != PLAIN:
        # All else was drawn before, in either case: to Hypothesis the fewest choices are
        # the simplest. Modules take plain steps, see NEVER_TOGETHER.
        listed = module_parameter_lists(module, mesh, capabilities=capabilities)
        scenario = Scenario(
            mesh=mesh,
            parameters=draw(listed),
            accumulations=counts,
            bucket_cap_bytes=scenario.bucket_cap_bytes,
            module=module,
        )
    return draw(crowded(scenario, capabilities=capabilities))


@functools.cache
def _asked(capabilities: Capabilities) -> st.SearchStrategy[Capabilities]:
    """Ask mostly for what the subject must get right: an error ends what else there is.

    Returns:
        A strategy for the contract that one scenario keeps to.
    """
    strict = without_excuses(capabilities)
    if strict == capabilities:
        return st.just(capabilities)
    return st.sampled_from([strict, strict, capabilities])


def _meshes(max_ranks: int, capabilities: Capabilities) -> st.SearchStrategy[MeshSpec]:
    return meshes(
        max_ranks=max_ranks,
        max_axes=3 if capabilities.covers("mesh", "3 axes") else 2,
        unnamed=capabilities.covers("mesh", "unnamed"),
    )
