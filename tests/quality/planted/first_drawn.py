"""The first scenario that a search would draw, and that is looked for."""

from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, Phase, given, seed, settings

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.search.isolation import independent_backend, without_local_constants
from syncverify.strategies import scenarios


class MetError(Exception):
    """The scenario that is looked for is drawn."""


def first_drawn(
    is_wanted: Callable[[Scenario], bool],
    capabilities: Capabilities,
    num_scenarios: int,
    random_seed: int = 0,
) -> Scenario | None:
    """Return the first scenario that is wanted; the drawing ends with it."""
    met: list[Scenario] = []

    @seed(random_seed)
    @settings(
        max_examples=num_scenarios,
        phases=[Phase.generate],
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        backend=independent_backend(),
    )
    @given(scenarios(capabilities=capabilities))
    def draw(scenario: Scenario) -> None:
        # Hypothesis draws the failing example again, to see it fail.
        if met or is_wanted(scenario):
            met[:] = [scenario]
            raise MetError

    with without_local_constants(), suppress(MetError):
        draw()
    return met[0] if met else None
