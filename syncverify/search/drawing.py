"""Random scenarios: a sequence that depends on a seed alone, and that can be shrunk."""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.settings import Settings
from syncverify.scenario.space import Space
from syncverify.search.isolation import (
    independent_backend,
    outside_of_tests,
    without_local_constants,
)
from syncverify.search.judge import Draw
from syncverify.strategies.scenarios import scenarios
from syncverify.strategies.schedules import schedules

# Time limits of Hypothesis would count the runs, not the draws. All other health checks are
# on: strategies construct scenarios and filter none.
_SUPPRESSED_CHECKS = (HealthCheck.too_slow,)
# Hypothesis keeps a tree of all choices of one call, 45 kB a scenario, to repeat none.
_EXAMPLES_PER_TREE = 1000
# More seeds than a user gives: the parts of a sequence have seeds of their own.
_SEEDS = 2**64


def named_seed(random_seed: int, name: object, num_bytes: int = 4) -> int:
    """Return a seed of its own for a part of a search, which has a name."""
    digest = hashlib.sha256(f"{random_seed}: {name}".encode()).digest()
    return int.from_bytes(digest[:num_bytes])


class ReproducedError(Exception):
    """Tells Hypothesis that a scenario still shows the violation, so that it shrinks."""


class EndedError(BaseException):
    """Ends the drawing at once; Hypothesis would replay a mere `Exception`."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence of given scenarios."""

    scenarios: tuple[Scenario, ...]

    def for_each(self, body: Callable[[Scenario, Draw], None], *_: Phase) -> None:
        """Call a function with each scenario, until it raises `EndedError`; no schedule is drawn."""
        with contextlib.suppress(EndedError):
            for scenario in self.scenarios:
                body(scenario, lambda _: DEFAULT_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A sequence of random scenarios; equal seeds give equal sequences."""

    capabilities: Capabilities
    max_ranks: int
    num_examples: int
    random_seed: int
    focus: str | None = None  # topic of which most scenarios have a special value
    size: str | None = None  # as for `scenarios`

    def __post_init__(self) -> None:
        """Refuse a contract that leaves no scenario of so few ranks."""
        Space(self.capabilities, self.max_ranks).require_scenarios()

    @classmethod
    def of(cls, capabilities: Capabilities, settings: Settings) -> Self:
        """Return the scenarios that a search plays."""
        count, seed = settings.examples, settings.random_seed
        return cls(capabilities, settings.ranks, count, seed, settings.focus)

    def drawn(self) -> list[Scenario]:
        """Return the scenarios of the sequence."""
        found: list[Scenario] = []
        self.for_each(lambda scenario, _: found.append(scenario), Phase.generate)
        return found

    def for_each(self, body: Callable[[Scenario, Draw], None], *phases: Phase) -> None:
        """Call a function with each scenario of the sequence, which starts again from the seed.

        Args:
            body: Takes a scenario and a function that draws a schedule for it. If it raises
                `ReproducedError` and the phases include `shrink`, Hypothesis shrinks the
                scenario. If it raises `EndedError`, the sequence ends. Any other error is raised.
        """
        failures: list[BaseException] = []

        def guarded(scenario: Scenario, data: st.DataObject) -> None:
            """Hide errors of the harness from Hypothesis, which would replay them."""
            try:
                body(scenario, lambda count: data.draw(schedules(count)))
            except ReproducedError:
                raise
            except (Exception, SystemExit) as error:
                failures.append(error)
                raise EndedError from error

        drawn = scenarios(
            max_ranks=self.max_ranks,
            capabilities=self.capabilities,
            focus=self.focus,
            size=self.size,
        )
        with (
            contextlib.suppress(ReproducedError, EndedError),
            outside_of_tests(),
            without_local_constants(),
        ):
            for first in range(0, self.num_examples, _EXAMPLES_PER_TREE):
                count = min(_EXAMPLES_PER_TREE, self.num_examples - first)
                chosen = settings(
                    max_examples=count,
                    phases=phases,
                    database=None,
                    deadline=None,
                    print_blob=False,
                    # Otherwise Hypothesis goes on after a failure for ten seconds of wall clock,
                    # and the result would depend on the speed of the machine.
                    report_multiple_bugs=False,
                    verbosity=Verbosity.quiet,
                    suppress_health_check=_SUPPRESSED_CHECKS,
                    backend=independent_backend(),
                )
                test = chosen(given(drawn, st.data())(guarded))
                seed(self.random_seed + first * _SEEDS)(test)()
        if failures:
            raise failures[0]
