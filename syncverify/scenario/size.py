"""The size of a scenario, as its reader feels it."""

from __future__ import annotations

import math

from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario


def size_of(scenario: Scenario) -> tuple[int, ...]:
    """Return the numbers that make a scenario long to read, the most important one first."""
    return (
        scenario.mesh.num_ranks,
        len(scenario.mesh.shape),
        len(scenario.parameters),
        scenario.num_steps,
        sum(scenario.accumulations),
        len(list(optional_features(scenario))),
        sum(math.prod(spec.global_shape) for spec in scenario.parameters),
    )
