"""Every scenario of a small scope, with a schedule of each class: a proof within a bound."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Final

from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.settings import DEFAULTS, Settings
from syncverify.scenario.small_scope import SmallScope

_MOST_CLASSES: Final = 1000  # of the schedules of one scenario


@functools.lru_cache(maxsize=2)
def scenarios_within(
    scope: SmallScope, capabilities: Capabilities
) -> tuple[Scenario, ...]:
    """Return each scenario of a contract within a scope.

    Raises:
        UsageError: There is none.
    """
    listed = tuple(scope.scenarios(capabilities))
    if not listed:
        raise UsageError(f"the contract leaves no scenario within {scope}")
    return listed


def exhaustive_settings(settings: Settings, capabilities: Capabilities) -> Settings:
    """Return the settings of a search that plays all scenarios of its scope.

    Raises:
        UsageError: A setting asks for something else.
    """
    if settings.backend != "sim":
        raise UsageError(
            f"an exhaustive search plays all schedules, which takes the backend sim, and not "
            f"{settings.backend}"
        )
    schedules = settings.schedules
    if schedules == DEFAULTS["schedules"]:
        schedules = f"all:{_MOST_CLASSES}"
    if ScheduleChoice.parse(schedules).mode != "all":
        raise UsageError(
            f"an exhaustive search plays all schedules: expected all or all:N, not {schedules!r}"
        )
    scope = SmallScope.parse(settings.scope)
    return replace(
        settings,
        schedules=schedules,
        ranks=scope.ranks,
        examples=len(scenarios_within(scope, capabilities)),
    )
