"""The size of a scenario to its reader."""

from __future__ import annotations

import math

from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario


def size_of(scenario: Scenario) -> tuple[int, ...]:
    """Return the size of a scenario to its reader, the most important number first."""
    return (
        scenario.mesh.num_ranks,
        len(scenario.mesh.shape),
        len(scenario.parameters),
        scenario.num_steps,
        sum(scenario.accumulations),
        len(list(optional_features(scenario))),
        sum(math.prod(spec.global_shape) for spec in scenario.parameters),
    )
