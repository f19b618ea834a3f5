"""Words that are drawn last, by one choice: at most one of them for a scenario.

Note [The last choice]
    A word more in a choice moves all later choices, and with them every scenario that a seed
    stands for. So a new word takes one of the places here that left a scenario as it was.
    Scenarios without the word stay the same, and so do all scenarios after it.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hypothesis import strategies as st

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contract_meshes import covers_all
from syncverify.scenario.feature_table import CANCELLING, MANY, PLAIN, TABLE, ZERO
from syncverify.scenario.features import mesh_features
from syncverify.scenario.layout import (
    RESHAPED,
    TRANSPOSED,
    is_managed,
    on_mesh,
    other_mesh,
)
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import PARTIAL
from syncverify.scenario.words import may_be_drawn
from syncverify.strategies.enlarged_scenarios import with_long_training, with_many_ranks
from syncverify.strategies.overflows import with_gradient

_Change = Callable[[Scenario], Scenario]


@st.composite
def scenarios_with_last_words(
    draw: st.DrawFn, scenario: Scenario, *, max_ranks: int, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or one with a word more.

    One of twelve evaluates before its steps; see `Note [The last choice]`. Shrinks toward the
    scenario itself.
    """
    if scenario.module != PLAIN:
        return scenario
    changed = draw(_changes(max_ranks, capabilities))(scenario)
    # A scalar on a reshaped mesh is reduced over two axes; the scenario's mesh may have one.
    is_new = changed is not scenario and may_be_drawn(changed, capabilities)
    return changed if is_new else scenario


@functools.cache
def _changes(max_ranks: int, capabilities: Capabilities) -> st.SearchStrategy[_Change]:
    """Generate changes; the order of their places is part of a seed's format."""
    has_many = max_ranks >= MANY["ranks"] - 1
    changes: dict[tuple[str, str], _Change] = {
        ("gradient", ZERO): partial(with_gradient, ZERO),
        ("size", "long training"): with_long_training,
        ("update", "in_backward"): _updating,
        **({("size", "many ranks"): with_many_ranks} if has_many else {}),
        ("gradient", CANCELLING): partial(with_gradient, CANCELLING),
        ("replicas", "unequal"): partial(replace, replicas="unequal"),
        ("on_mesh", TRANSPOSED): partial(_on_two_meshes, TRANSPOSED, capabilities),
        ("on_mesh", RESHAPED): partial(_on_two_meshes, RESHAPED, capabilities),
        ("evaluation", "before_steps"): partial(replace, evaluation="before_steps"),
    }
    covered = [changes[name] for name in changes if capabilities.covers(*name)]
    if not covered:
        return st.just(_unchanged)
    plain = [_unchanged] * (TABLE["evaluation"].one_in - len(covered))
    return st.sampled_from([*plain, *covered])


def _updating(scenario: Scenario) -> Scenario:
    """Update parameters inside of backward, without words that the update does not go with."""
    if any(PARTIAL in (spec.placements or ()) for spec in scenario.parameters):
        return scenario
    one = TABLE["synchronizers"].plain_word
    plain = replace(scenario, events=(), backward=PLAIN, synchronizers=one)
    return replace(plain, update="in_backward")


def _on_two_meshes(
    word: str, capabilities: Capabilities, scenario: Scenario
) -> Scenario:
    """Put every other parameter of a mesh on another mesh; a lone one gets a copy there."""
    mesh, listed = scenario.mesh, [*scenario.parameters]
    places = [n for n, spec in enumerate(listed) if is_managed(spec)]
    if not places or mesh.num_ranks == 1:
        return scenario
    if not covers_all(capabilities, mesh_features(other_mesh(mesh, word))):
        return scenario
    if len(places) == 1:
        places.append(len(listed))
        listed.append(replace(listed[places[0]], name=f"p{len(listed)}", use=PLAIN))
    for place in places[1::2]:
        listed[place] = on_mesh(mesh, listed[place], word)
    # A mesh may have one axis, and a strided shard may be uneven there.
    with contextlib.suppress(ScenarioFormatError):
        return replace(scenario, parameters=tuple(listed))
    return scenario


def _unchanged(scenario: Scenario) -> Scenario:
    return scenario
