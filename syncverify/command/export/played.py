"""A reproducer that was played on `sim`, with the optional methods that its script may call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from syncverify.playing.program.two_synchronizers import TwoSynchronizers
from syncverify.playing.sim import SimBackend
from syncverify.scenario.replay_token import Reproducer
from syncverify.search.replayed import Replayed, replayed
from syncverify.subjects.subject import Subject, same_signature

_OPTIONAL_METHODS: Final = (
    *("flush", "mark_ready", "reset", "run_micro_batch", "evaluate"),
    *("set_required_accumulations", "step_in_backward"),
)


def played_with_methods(
    reproducer: Reproducer, subject: Subject
) -> tuple[Replayed, frozenset[str]]:
    """Play a reproducer on `sim`.

    Returns:
        The play, and the names of the optional methods that the synchronizer has.
    """
    methods = set[str]()

    @same_signature(subject.factory)
    def make(*given: Any) -> Any:
        made = subject.factory(*given)
        methods.update(_methods_of(made))
        return made

    played = replayed(reproducer, replace(subject, factory=make), SimBackend())
    if reproducer.scenario.synchronizers == "two":
        methods.update(_methods_of(TwoSynchronizers))
    return played, frozenset(methods)


def _methods_of(synchronizer: object) -> set[str]:
    return {
        name
        for name in _OPTIONAL_METHODS
        if callable(getattr(synchronizer, name, None))
    }
