"""A training run of usual length, made of the steps of a small scenario."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice

from syncverify.scenario import Scenario

NUM_STEPS = 10


def trained(scenario: Scenario) -> Scenario:
    """Repeat the steps of a scenario, so that what goes wrong in one goes wrong again.

    Args:
        scenario: What shows a defect, as a rule in one step or two.

    Returns:
        The same program over `NUM_STEPS` optimizer steps, or more if it has more.
    """
    count = max(NUM_STEPS, scenario.num_steps)
    return replace(
        scenario,
        accumulations=tuple(islice(cycle(scenario.accumulations), count)),
        events=tuple(islice(cycle(scenario.events), count)),
    )
