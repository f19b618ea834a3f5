"""Strategies for whole scenarios.

Note [Combined scenarios]
    Features that are drawn one by one rarely meet: of a hundred words that each occur in one
    scenario of a hundred, ten thousand scenarios show a given pair once. Two of three scenarios
    are therefore combined: each step, each topic of the scenario and each topic of a parameter may
    get one more rare word, so that one scenario shows many pairs.

    Source: Groce et al., "Swarm Testing" (ISSTA 2012): random subsets of features.
"""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.errors import UsageError
from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.feature_table import MAX_AXES, NEVER_TOGETHER, PLAIN, TABLE
from syncverify.scenario.features import features_of_parameter, without_clear_errors
from syncverify.scenario.scenario import PARAMETER_WORDS, SCENARIO_WORDS, Scenario
from syncverify.scenario.space import BUCKET_CAP, Space, is_in_focus
from syncverify.scenario.words import allowed_words, has_no_impossible_pair, with_word
from syncverify.strategies.accumulations import accumulations
from syncverify.strategies.bucket_caps import bucket_caps, bucket_edges, cap_within
from syncverify.strategies.enlarged_scenarios import enlarged_scenarios
from syncverify.strategies.last_words import scenarios_with_last_words
from syncverify.strategies.meshes import meshes
from syncverify.strategies.modules import module_parameter_lists, modules
from syncverify.strategies.overflows import overflowing_scenarios
from syncverify.strategies.parameters import parameter_lists
from syncverify.strategies.training_programs import (
    backwards,
    caller_streams,
    readiness_orders,
    step_events,
    used_by,
    uses,
    word_choices,
)

# By the focus of the scenarios. One with a module takes as long as several without one, and
# has fewer features.
_ONE_MODULE_IN: Final[Mapping[str | None, int]] = {
    None: TABLE["module"].one_in,
    "module": 2,
}
# A scenario that is not in focus is drawn again, so often at most. Rejecting all of them would
# take a rare topic too long.
_MAX_DRAWS = 6
_IS_COMBINED = st.sampled_from([False, True, True])
# A topic of few words lists "no change" up to this often: its words do not occur in every
# scenario, and some of them occur with little else.
_MAX_NO_CHANGE = 12
# Topics that any scenario can take. Their order is part of the format of a seed.
_FIT_ANY = {name for name, topic in TABLE.items() if topic.fits_any}
_TOPICS_OF_SCENARIO = [name for name in SCENARIO_WORDS if name in _FIT_ANY]
_TOPICS_OF_PARAMETER = [name for name in PARAMETER_WORDS if name in _FIT_ANY]


def scenarios(
    *,
    max_ranks: int = 4,
    capabilities: Capabilities = EVERYTHING,
    focus: str | None = None,
    size: str | None = None,
) -> st.SearchStrategy[Scenario]:
    """Generate scenarios that a contract covers.

    Shrinks toward one rank, one parameter, one step, one micro-batch.

    Args:
        max_ranks: Largest number of ranks. From four on, one scenario in hundreds has up to
            eight, unless the contract leaves out `size=many ranks`.
        capabilities: Contract of the subject.
        focus: Topic of `syncverify run --focus`, such as `bucket_cap`, of which most
            scenarios then have a special value; None for no focus.
        size: Value of the topic `size` that each scenario gets if the contract lets it; None
            for a rare one.

    Raises:
        InvalidArgument: There is no such topic, or the contract leaves no value of it.
    """
    drawn = _scenarios(
        max_ranks=max_ranks,
        capabilities=capabilities,
        one_module_in=_ONE_MODULE_IN.get(focus, _ONE_MODULE_IN[None]),
        size=size,
    )
    if focus is None:
        return drawn
    try:
        Space(capabilities, max_ranks).require_focus(focus)
    except UsageError as error:
        raise InvalidArgument(str(error)) from error
    return _focused_scenarios(drawn, topic=focus, capabilities=capabilities)


@st.composite
def _focused_scenarios(
    draw: st.DrawFn,
    scenarios: st.SearchStrategy[Scenario],
    *,
    topic: str,
    capabilities: Capabilities,
) -> Scenario:
    """Generate scenarios that mostly have a special value of a topic; see `is_in_focus`.

    Shrinks as the scenarios do. With the topic `bucket_cap`, parameters fill a bucket to the
    byte, or nearly, see `bucket_edges`.
    """
    for _ in range(_MAX_DRAWS):
        scenario = draw(scenarios)
        if topic == BUCKET_CAP:
            world = scenario.mesh, scenario.parameters
            edges = bucket_edges(*world, near_misses=True)
            caps = {cap_within(cap, *world, capabilities) for cap in edges}
            # Shrinks toward no split.
            chosen = draw(st.sampled_from(sorted(caps, reverse=True)))
            return replace(scenario, bucket_cap_bytes=chosen)
        if is_in_focus(scenario, topic):
            break
    return scenario


@st.composite
def _scenarios(
    draw: st.DrawFn,
    *,
    max_ranks: int,
    capabilities: Capabilities,
    one_module_in: int,
    size: str | None,
) -> Scenario:
    """Generate scenarios of a contract, on up to a number of ranks."""
    # The order of draws is part of the format of a seed: a draw that moves changes every
    # scenario that a seed stands for.
    capabilities = draw(_contracts(capabilities, max_ranks))
    drawn = meshes(
        max_ranks=max_ranks,
        max_axes=MAX_AXES,
        unnamed=True,
        permuted=True,
        capabilities=capabilities,
    )
    mesh = draw(drawn)
    module = draw(modules(mesh, capabilities=capabilities, one_in=one_module_in))
    parameters = draw(parameter_lists(mesh, capabilities=capabilities))
    counts = draw(accumulations(capabilities=capabilities))
    beside = frozenset(
        str(each) for spec in parameters for each in features_of_parameter(mesh, spec)
    )
    events = draw(step_events(len(counts), beside=beside, capabilities=capabilities))
    launch = draw(caller_streams(capabilities=capabilities))
    known = {f"launch={launch}", *(f"event={event}" for event in events)}
    beside = (beside & _EXCLUDE_BACKWARDS) | known
    backward = draw(backwards(beside=beside, capabilities=capabilities))
    parameters = draw(used_by(parameters, capabilities=capabilities))
    beside = frozenset({f"backward={backward}", f"launch={launch}"})
    parameters = draw(uses(parameters, beside=beside, capabilities=capabilities))
    # A subject that promises plain steps alone keeps plain caps: its scenarios do not
    # depend on features that it does not cover.
    near_misses = not capabilities.asks_plain_steps_alone
    edges = bucket_edges(mesh, parameters, near_misses=near_misses)
    cap = draw(bucket_caps() | st.sampled_from(edges))
    scenario = Scenario(
        mesh=mesh,
        parameters=parameters,
        accumulations=counts,
        bucket_cap_bytes=cap_within(cap, mesh, parameters, capabilities),
        events=events,
        launch=launch,
        backward=backward,
        readiness=draw(readiness_orders(capabilities=capabilities)),
        synchronizers=draw(word_choices("synchronizers", capabilities=capabilities)),
    )
    # The draws above happen with and without a module: to Hypothesis an example with fewer
    # choices is simpler, and shrinking would lead to modules.
    if module != PLAIN:  # it is trained by plain steps, see `NEVER_TOGETHER`
        parameters = draw(
            module_parameter_lists(module, mesh, capabilities=capabilities)
        )
        cap = cap_within(scenario.bucket_cap_bytes, mesh, parameters, capabilities)
        scenario = Scenario(mesh, parameters, counts, cap, module=module)
    scenario = draw(_combined_scenarios(scenario, capabilities=capabilities))
    large = partial(enlarged_scenarios, max_ranks=max_ranks, size=size)
    scenario = draw(large(scenario, capabilities=capabilities))
    scenario = draw(overflowing_scenarios(scenario, capabilities=capabilities))
    last = partial(scenarios_with_last_words, max_ranks=max_ranks)
    return draw(last(scenario, capabilities=capabilities))


# Features of parameters that some way to run backward cannot meet. The strategy of backwards
# gets these alone, since it caches its words for each set of features.
_EXCLUDE_BACKWARDS: Final = frozenset(
    str(other)
    for feature, other in itertools.chain(*map(itertools.permutations, NEVER_TOGETHER))
    if feature.topic == "backward"
)


@functools.cache
def _contracts(
    capabilities: Capabilities, max_ranks: int
) -> st.SearchStrategy[Capabilities]:
    """Return a strategy for a scenario's contract, mostly without features that may raise.

    A legal error ends the run, and the rest of the scenario shows nothing.
    """
    strict = without_clear_errors(capabilities)
    if strict == capabilities or Space(strict, max_ranks).missing_topic():
        return st.just(capabilities)
    return st.sampled_from([strict, strict, capabilities])


@st.composite
def _combined_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or two times out of three one with more rare features.

    See Note [Combined scenarios]. Shrinks toward the scenario itself.
    """
    if not _has_words(capabilities) or not draw(_IS_COMBINED):
        return scenario
    places = [(topic, 0) for topic in _TOPICS_OF_SCENARIO]
    places += [("event", step) for step in range(scenario.num_steps)]
    for index in range(len(scenario.parameters)):
        places += [(topic, index) for topic in _TOPICS_OF_PARAMETER]
    for topic, place in places:
        word = draw(_changed_words(topic, capabilities))
        if word is not None:
            changed = with_word(scenario, topic, word, [place])
            if has_no_impossible_pair(changed):
                scenario = changed
    return scenario


@functools.cache
def _has_words(capabilities: Capabilities) -> bool:
    """Tell whether a contract covers any word that a change could add."""
    topics = ("event", *_TOPICS_OF_SCENARIO, *_TOPICS_OF_PARAMETER)
    return any(allowed_words(topic, capabilities=capabilities) for topic in topics)


@functools.cache
def _changed_words(
    topic: str, capabilities: Capabilities
) -> st.SearchStrategy[str | None]:
    """Generate words of a topic, or None for no change; shrinks toward None."""
    words = allowed_words(topic, capabilities=capabilities)
    num_none = max(1, _MAX_NO_CHANGE // max(1, len(words)))
    return st.sampled_from([*[None] * num_none, *words])
