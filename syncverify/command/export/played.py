"""A reproducer that was played on `sim`, with what its script has to know of the subject."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.program.two_synchronizers import TwoSynchronizers
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.token import Reproducer
from syncverify.sim.turns.decisions import Decisions, Following
from syncverify.subjects.subject import Subject, same_signature
from syncverify.trace.run import Run

_OPTIONAL_METHODS: Final = (
    *("flush", "reset", "run_micro_batch", "set_required_accumulations"),
)


@dataclass(frozen=True, slots=True)
class Played:
    """A run, and the optional methods of its synchronizers.

    Attributes:
        scenario: The scenario.
        run: The run on simulated ranks.
        judgement: The run beside the right gradients.
        methods: Names of the optional methods that the synchronizer has.
    """

    scenario: Scenario
    run: Run
    judgement: Judgement
    methods: frozenset[str]

    @classmethod
    def of(cls, reproducer: Reproducer, subject: Subject) -> Self:
        """Play a reproducer with a subject."""
        methods = set[str]()

        @same_signature(subject.factory)
        def make(*given: Any) -> Any:
            made = subject.factory(*given)
            methods.update(_methods_of(made))
            return made

        scenario = reproducer.scenario
        run = SimBackend().run_scheduled(
            scenario,
            replace(subject, factory=make),
            Decisions(Following(reproducer.schedule)),
        )
        if scenario.synchronizers == "two":
            methods.update(_methods_of(TwoSynchronizers))
        right = reference(scenario, subject.capabilities)
        judgement = Judgement(scenario, run, right)
        return cls(scenario, run, judgement, frozenset(methods))


def _methods_of(synchronizer: object) -> set[str]:
    return {
        name
        for name in _OPTIONAL_METHODS
        if callable(getattr(synchronizer, name, None))
    }
