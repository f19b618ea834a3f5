"""Play one scenario that a caller chose, and ask whether all is right: fuzzing by hand."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from syncverify.backends.choice import open_backend
from syncverify.report.text import violation_text
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.search.beyond_contract import observing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.isolation import default_torch_state
from syncverify.search.judge import Judge
from syncverify.search.result import distinct_identities
from syncverify.search.schedules import ScheduleChoice
from syncverify.subjects.contract_choice import ContractChoice
from syncverify.subjects.subject import SubjectFactory, resolve
from syncverify.verification import diagnosed


@dataclass(frozen=True, slots=True)
class PlayedScenario:
    """A scenario that was played and judged once.

    Attributes:
        scenario: The scenario.
        subject: Name of the subject.
        backend: Name of the backend.
        contract: Name or file of the contract that replaced the subject's own, or "".
        violations: The violations, the one that a report names first comes first.
        launches_per_step: Largest number of collectives that a rank launched, by the number
            of steps, rounded up.
    """

    scenario: Scenario
    subject: str
    backend: str
    contract: str
    violations: tuple[FoundViolation, ...] = field(repr=False)
    launches_per_step: int

    @property
    def is_right(self) -> bool:
        """Whether no property is violated."""
        return not self.violations


@default_torch_state()
def play(
    scenario: Scenario,
    subject: str | SubjectFactory,
    *,
    contract: ContractChoice | None = None,
    backend: str = "sim",
    schedule: Schedule = DEFAULT_SCHEDULE,
) -> PlayedScenario:
    """Play one scenario with a synchronizer, and judge it by all properties.

    A feature of the scenario that the contract does not name may be refused by a clear
    error, and may not be silently wrong.

    Args:
        scenario: The scenario, such as one that `syncverify.strategies.scenarios` draws.
        subject: A class, a factory, a built-in name, or `module:attribute`.
        contract: Contract in the place of the subject's own, as for `verify`.
        backend: `sim`, `gloo` or `fake`.
        schedule: Choices of timing on `sim`.

    Returns:
        The violations, for `assert_right`.

    Raises:
        UsageError: The subject or the backend cannot play the scenario.
    """
    found = observing(resolve(subject, contract), scenario)
    with closing(open_backend(backend, found)) as opened:
        judge = Judge(found, opened, ScheduleChoice(), random_seed=0)
        judged = judge.judge_schedule(scenario, schedule)
        violations = tuple(
            diagnosed(judged.violations[identity], found, opened)
            for identity in distinct_identities(judged.violations)
        )
    return PlayedScenario(
        scenario,
        found.name,
        opened.name,
        found.contract_choice,
        violations,
        judged.launches_per_step,
    )


def assert_right(played: PlayedScenario) -> None:
    """Raise unless all properties hold in a scenario that was played.

    Raises:
        AssertionError: A property is violated; the message is the diagnosis of each.
    """
    __tracebackhide__ = True  # pytest shows the user's lines and the diagnosis
    if played.is_right:
        return
    first = played.violations[0].violation
    texts = [
        violation_text(
            entry,
            subject=played.subject,
            backend=played.backend,
            contract=played.contract,
        )
        for entry in played.violations
    ]
    raise AssertionError("\n\n".join([f"{first.property}: {first.summary}", *texts]))
