"""Scenarios that combine many rare features.

Features that are drawn one by one rarely meet: of a hundred words that each occur in one
scenario of a hundred, ten thousand scenarios show a given pair once. Two of three scenarios
are therefore combined: each step, each topic of the scenario and each topic of a parameter may
get one more rare word, so that one scenario shows many pairs.

Source:
    Groce et al., "Swarm Testing" (ISSTA 2012): random subsets of features.
"""

import functools

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import TABLE
from syncverify.scenario.scenario import PARAMETER_WORDS, SCENARIO_WORDS, Scenario
from syncverify.scenario.words import allowed_words, has_no_impossible_pair, with_word

_IS_COMBINED = st.sampled_from([False, True, True])
# A topic of few words lists "no change" up to this often: its words do not occur in every
# scenario, and some of them occur with little else.
_MAX_NO_CHANGE = 12
# Topics that any scenario can take. Their order is part of the format of a seed.
_FIT_ANY = {name for name, topic in TABLE.items() if topic.fits_any}
_TOPICS_OF_SCENARIO = [name for name in SCENARIO_WORDS if name in _FIT_ANY]
_TOPICS_OF_PARAMETER = [name for name in PARAMETER_WORDS if name in _FIT_ANY]


@st.composite
def combined_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or two times out of three one with more rare features.

    Shrinks toward the scenario itself. No scenario has a pair of `NEVER_TOGETHER`.
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
