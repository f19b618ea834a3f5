"""Play one scenario that a caller chose: fuzzing by hand."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace

from syncverify.errors import UsageError
from syncverify.explain.repair.diagnosis import diagnosed
from syncverify.playing.announced_counts import with_announced_counts
from syncverify.playing.choice import open_backend
from syncverify.scenario.contract import ContractChoice
from syncverify.scenario.replay_token import Reproducer
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.search.found_violation import FoundViolation
from syncverify.search.isolation import default_torch_state, unexplained
from syncverify.search.occurrences import Occurrences
from syncverify.search.replayed import Replayed, observing, replayed
from syncverify.subjects.subject import Subject, SubjectFactory, resolve


@dataclass(frozen=True, slots=True)
class PlayedScenario:
    """A scenario that was played and judged once.

    Attributes:
        scenario: Mesh, parameters and steps of the program.
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
    _resolved: Subject = field(repr=False, compare=False)

    @property
    def is_right(self) -> bool:
        """Tell whether no property is violated."""
        return not self.violations

    @default_torch_state()
    def diagnosed(self) -> PlayedScenario:
        """Play variants of the run, for a witness, the lines that decide and a fix; it takes seconds."""
        subject = self._resolved
        with closing(open_backend(self.backend, subject)) as opened:
            found = (diagnosed(each, subject, opened) for each in self.violations)
            return replace(self, violations=tuple(found))


@unexplained
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
        backend: Name of a backend, such as `sim` or `gloo`.
        schedule: Choices of timing on `sim`.

    Returns:
        The scenario with its violations, for `assert_right`.

    Raises:
        UsageError: The subject or the backend cannot play the scenario.
    """
    __tracebackhide__ = True  # pytest shows the user's lines and the message
    try:
        resolved = with_announced_counts(resolve(subject, contract), backend, [])
        found = observing(resolved, scenario)
        played = _played(Reproducer("", "", scenario, schedule), found, backend)
    except UsageError as error:
        # The caller's mistake: no line of the harness explains it.
        raise error.with_traceback(None) from error.__cause__
    # Violations that are no sign of another one, each with its signs.
    met = Occurrences()
    met.add(played.found)
    violations = tuple(
        replace(played.found[identity], related=related)
        for identity, related in met.reported().items()
    )
    return PlayedScenario(
        scenario=scenario,
        subject=found.name,
        backend=backend,
        contract=found.contract_choice,
        violations=violations,
        launches_per_step=played.launches_per_step,
        _resolved=found,
    )


@default_torch_state()
def _played(reproducer: Reproducer, subject: Subject, backend: str) -> Replayed:
    with closing(open_backend(backend, subject)) as opened:
        return replayed(reproducer, subject, opened)
