"""Stop a search at its first violation, and say which one it was."""

from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.properties import check
from syncverify.run import Run
from syncverify.scenario import Scenario
from syncverify.sim.decisions import Decisions
from syncverify.subject import Subject


class ViolationFoundError(Exception):
    """Ends a search; there is nothing to shrink in order to know.

    Attributes:
        examples: Scenarios played so far.
    """

    def __init__(self, examples: int) -> None:
        super().__init__(f"a violation in scenario {examples}")
        self.examples = examples


class FirstViolation(SimBackend):
    """A simulation that knows its last run, and the progress of a search on it."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[Scenario, Run] | None = None

    @override
    def run_scheduled(
        self, scenario: Scenario, subject: Subject, decisions: Decisions
    ) -> Run:
        run = super().run_scheduled(scenario, subject, decisions)
        self._last = scenario, run
        return run

    def played(self, num_examples: int, num_violations: int) -> None:
        """End the search if there was a violation.

        Args:
            num_examples: Scenarios played so far.
            num_violations: Violations found so far.

        Raises:
            ViolationFoundError: There is one.
        """
        if num_violations:
            raise ViolationFoundError(num_examples)

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        """Say nothing: nothing is shrunk."""

    def describe(self, subject: Subject) -> str:
        """Name the first violation of the last run by property and cause.

        Args:
            subject: Whom it was a run of.

        Returns:
            Such as "gradient_equals_reference (scaled)". What one run alone does not show
            is about determinism.
        """
        assert self._last is not None, "a violation comes of a run"
        scenario, run = self._last
        found = check(scenario, run, subject.capabilities)
        if not found:
            return "subject_is_deterministic"
        return f"{found[0].property} ({found[0].cause})"
