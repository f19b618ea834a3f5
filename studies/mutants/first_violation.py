"""Stop a search at its first violation, and name the violation."""

from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.search.found_violation import FoundViolation
from syncverify.sim.turns.decisions import Decisions
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run


class ViolationFoundError(Exception):
    """Ends a search at its first violation, before shrinking.

    Attributes:
        examples: Scenarios played so far.
    """

    def __init__(self, examples: int) -> None:
        super().__init__(f"a violation in scenario {examples}")
        self.examples = examples


class FirstViolation(SimBackend):
    """A simulation that keeps its last run and ends the search after a violation."""

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
            ViolationFoundError: There is a violation.
        """
        if num_violations:
            raise ViolationFoundError(num_examples)

    def found(self, violation: FoundViolation) -> None:
        """Do nothing: `played` ends the search."""

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        """Do nothing: no violation is shrunk."""

    def shrunk(self, violation: FoundViolation) -> None:
        """Do nothing: no violation is shrunk."""

    def describe(self, subject: Subject) -> str:
        """Name the first violation of the last run by property and cause.

        Args:
            subject: Subject of the run.

        Returns:
            The name, such as "gradient_equals_reference (scaled)". If the run itself has no
            violation, a second run differed: "subject_is_deterministic".
        """
        assert self._last is not None, "a violation comes of a run"
        scenario, run = self._last
        found = check(scenario, run, subject.capabilities)
        if not found:
            return "subject_is_deterministic"
        return f"{found[0].property} ({found[0].cause})"
