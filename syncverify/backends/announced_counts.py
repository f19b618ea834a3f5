"""The contract of a subject whose instances alone show `set_required_accumulations()`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from syncverify.backends.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject, same_signature
from syncverify.subjects.subject_api import COUNT_SETTER

_ONE_STEP: Final = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (1,), ("R",)),), (1,), 64
)


def with_announced_counts(subject: Subject, backend: str, notes: list[str]) -> Subject:
    """Return the subject; numbers of micro-batches vary if its instance takes them.

    Args:
        subject: A subject; most are returned as they are, see `Subject.may_announce`.
        backend: Name of the backend. On `sim` and on `fake` one step makes an instance.
        notes: Receives a line where no instance shows the method.
    """
    if not subject.may_announce:
        return subject
    has_setter = _instance_has_setter(subject) if backend in {"sim", "fake"} else None
    if has_setter is None:
        notes.append(
            f"not tried on {backend}: other numbers of micro-batches in later steps, since "
            f"only an instance shows whether {subject.name!r} has {COUNT_SETTER}(); play it "
            "on sim as well, or set varying_accumulations in its contract"
        )
    varies = has_setter or False
    capabilities = replace(subject.capabilities, varying_accumulations=varies)
    return replace(subject, capabilities=capabilities, may_announce=False)


def _instance_has_setter(subject: Subject) -> bool | None:
    """Play one step; None if no instance came of it."""
    found: list[bool] = []

    @same_signature(subject.factory)
    def make(*given: Any) -> Any:
        made = subject.factory(*given)
        found.append(callable(getattr(made, COUNT_SETTER, None)))
        return made

    SimBackend().run(_ONE_STEP, replace(subject, factory=make))
    return all(found) if found else None
