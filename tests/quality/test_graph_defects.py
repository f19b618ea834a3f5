"""Features of the autograd engine are needed: each defect here shows through them alone.

What is drawn is tested in tests/strategies/test_graph_words.py; here each feature is put
into one scenario, so that a search is not played for each.
"""

from dataclasses import replace
from typing import Any

import pytest
from planted import graphs

from syncverify.backends.sim import SimBackend
from syncverify.graphs.matrix import scenario_of
from syncverify.properties import check
from syncverify.subject import resolve
from syncverify.vocabulary import BACKWARDS, PLAIN, RARE, USES

REENTRANT = (
    ("use", "checkpointed_reentrant"),
    ("use", "checkpointed_and_not"),
    ("use", "checkpointed_nested"),
    ("backward", "reentrant"),
    ("backward", "deep_reentrant"),
)
# What each defect is shown by, and by none of the others here.
SHOWN_BY: dict[type[Any], set[tuple[str, str]]] = {
    graphs.CountsHookCalls: {*REENTRANT},
    graphs.CountsArrivals: {*REENTRANT, ("backward", "grad_beside")},
    # The 61st nested backward is on another thread, whose gradients it does not count.
    graphs.CountsPerThread: {*REENTRANT[:-1], ("backward", "on_threads")},
    graphs.TakesArrivals: {
        ("backward", "hooks_of_others"),
        ("backward", "grad_beside"),
    },
    graphs.HoldsFirstGradient: {("backward", "create_graph")},
    graphs.CountsEnds: {
        *REENTRANT,
        ("backward", "inputs_in_turn"),
        ("backward", "on_threads"),
    },
}
SHOWING = sorted(set().union(*SHOWN_BY.values()))
DRAWN = [("use", w) for w in USES if w not in RARE]
DRAWN += [("backward", w) for w in BACKWARDS if w not in RARE]


def is_caught(topic: str, word: str, subject: type[Any]) -> bool:
    scenario = replace(scenario_of(topic, word), accumulations=(2,))
    found = resolve(subject)
    return bool(check(scenario, SimBackend().run(scenario, found), found.capabilities))


@pytest.mark.slow
@pytest.mark.parametrize("subject", SHOWN_BY)
def test_defect_shows_through_these_features_alone(subject: type[Any]) -> None:
    shown = {row for row in SHOWING if is_caught(*row, subject)}
    assert shown == SHOWN_BY[subject]
    assert not is_caught("use", PLAIN, subject)


@pytest.mark.slow
def test_nothing_is_found_in_a_synchronizer_that_waits_for_the_end() -> None:
    assert [row for row in DRAWN if is_caught(*row, graphs.CountsBackwards)] == []
