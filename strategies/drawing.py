"""Random scenarios in a sequence that depends on a seed alone, and can be shrunk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from strategies.independence import independent
from strategies.reproducibility import blind_to_local_code
from strategies.scenarios import scenarios
from strategies.schedules import schedules
from syncverify.features import ALL_BEYOND
from syncverify.scenario import Scenario
from syncverify.schedule import Schedule
from syncverify.subject import Capabilities

Draw = Callable[[int], Schedule]

# Hypothesis' time limits count what playing takes, which is no fault of the drawing, and
# a test that verifies may itself be given examples. All other checks are on: scenarios are
# made, not filtered.
_NOT_CHECKED = (HealthCheck.too_slow, HealthCheck.nested_given)


class ReproducedError(Exception):
    """Tells Hypothesis that a scenario still shows the violation, so that it shrinks it."""


class EndedError(BaseException):
    """Ends the drawing at once; no `Exception`, which Hypothesis would play again."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A sequence of random scenarios.

    Attributes:
        capabilities: What the subject promises.
        max_ranks: Largest world.
        num_examples: Length of the sequence, at most.
        random_seed: Same seed, same sequence.
    """

    capabilities: Capabilities
    max_ranks: int
    num_examples: int
    random_seed: int

    def for_each(self, body: Callable[[Scenario, Draw], None], *phases: Phase) -> None:
        """Call `body` on random scenarios.

        `body` may draw a schedule, of as many decisions as it says. Where it raises
        `ReproducedError`, the scenario is shrunk, if that is among the phases; where it
        raises `EndedError`, nothing more is drawn.
        """
        failures: list[BaseException] = []

        def guarded(scenario: Scenario, data: st.DataObject) -> None:
            """Keep errors of ours from Hypothesis, which would play them again."""
            try:
                body(scenario, lambda count: data.draw(schedules(count)))
            except ReproducedError:
                raise
            except (Exception, SystemExit) as error:
                failures.append(error)
                raise EndedError from error

        drawn = scenarios(max_ranks=self.max_ranks, capabilities=self.capabilities)
        configured = settings(
            max_examples=self.num_examples,
            phases=phases,
            database=None,
            deadline=None,
            print_blob=False,
            # Or Hypothesis looks for more, for as many seconds as it has.
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
            suppress_health_check=_NOT_CHECKED,
            backend=_backend(self.capabilities),
        )
        with contextlib.suppress(ReproducedError, EndedError), blind_to_local_code():
            seed(self.random_seed)(configured(given(drawn, st.data())(guarded)))()
        if failures:
            raise failures[0]


def _backend(capabilities: Capabilities) -> str:
    """Name who draws; whoever promises plain steps alone is searched as ever."""
    if capabilities.outside >= ALL_BEYOND:
        return "hypothesis"
    return independent()
