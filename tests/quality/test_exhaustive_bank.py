"""Entries of the bank that fit into a small scope are found in it.

An entry fits if the smallest scenario that a search found for it lies within the bounds. Scenarios
have one dtype, float32, so an entry that needs another one does not fit.
"""

from __future__ import annotations

import pytest

from studies.bank_rows import caught
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.scenario.features import optional_features
from syncverify.scenario.replay_token import decode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.small_scope import WORD_TOPICS, SmallScope
from syncverify.search.isolation import default_torch_state
from syncverify.search.judge import Judge
from syncverify.search.schedules import ScheduleChoice

SMALLEST = {name: decode(row.token).scenario for name, row in caught().items()}


def topics_of(scenario: Scenario) -> set[str]:
    return {feature.topic for feature in optional_features(scenario)}


def fits(scenario: Scenario) -> bool:
    dtypes = {each.effective_grad_dtype for each in scenario.parameters}
    return (
        scenario.mesh.num_ranks <= 2
        and len(scenario.mesh.shape) == len(scenario.groups) == 1
        and len(scenario.parameters) <= 3
        and max(scenario.accumulations) <= 2
        and scenario.num_steps <= 2
        and dtypes == {"float32"}
        and topics_of(scenario) <= {*WORD_TOPICS}
    )


FITTING = [name for name, scenario in SMALLEST.items() if fits(scenario)]


def test_most_of_the_bank_fits() -> None:
    assert len(FITTING) > 0.5 * len(SMALLEST)


@pytest.mark.nightly
@default_torch_state()
def test_each_entry_that_fits_is_found() -> None:
    missed = [name for name in FITTING if not is_found(name)]
    assert missed == []


def is_found(name: str) -> bool:
    subject = entry_of(name).defect()
    words = tuple(sorted(topics_of(SMALLEST[name]))) or ("event",)
    judge = Judge(subject, SimBackend(), ScheduleChoice("all", 100), 0)
    listed = SmallScope(words=words).scenarios(subject.capabilities)
    return any(
        judge.judge_scenario(scenario, lambda _: DEFAULT_SCHEDULE).violations
        for scenario in listed
    )
