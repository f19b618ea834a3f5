"""A training run of usual length, made of the steps of a small scenario."""

from dataclasses import replace
from itertools import cycle, islice

from syncverify.scenario.scenario import Scenario

NUM_STEPS = 10


def trained(scenario: Scenario) -> Scenario:
    """Repeat the steps of a scenario, so that a mistake of one step comes again.

    Args:
        scenario: Shows a defect, mostly in one step or two.

    Returns:
        The same program over `NUM_STEPS` optimizer steps; a longer scenario as it is.
    """
    count = max(NUM_STEPS, scenario.num_steps)
    return replace(
        scenario,
        accumulations=tuple(islice(cycle(scenario.accumulations), count)),
        events=tuple(islice(cycle(scenario.events), count)),
    )
