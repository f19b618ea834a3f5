"""The numbers of micro-batches that a subject takes: by its contract, its class or an instance."""

from dataclasses import replace
from typing import Any, Final

from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject, same_signature
from syncverify.subjects.subject_api import (
    COUNT_SETTER,
    RunsMicroBatches,
    takes_new_counts,
)

_ONE_STEP: Final = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (1,), ("R",)),), (1,), 64
)


def with_announced_counts(subject: Subject, backend: str, notes: list[str]) -> Subject:
    """Return the subject; numbers of micro-batches vary if its instance takes them.

    On `sim` and on `fake` one step makes an instance; on `gloo` too if the contract promises other
    numbers. `notes` receives a line where no instance shows the method, and where a contract
    promises such numbers to a class that has no method to take them.
    """
    if subject.may_announce:
        subject = _as_its_instance(subject, backend, notes)
    if subject.promises_counts and not subject.capabilities.varying_accumulations:
        notes.append(
            "not tried: other numbers of micro-batches in later steps, which the contract "
            f"promises, since {subject.name!r} has no {COUNT_SETTER}() to take them; each step "
            "has the number that the constructor got"
        )
    return subject


def _as_its_instance(subject: Subject, backend: str, notes: list[str]) -> Subject:
    """Return the subject with the contract that its instance can keep."""
    plays_here = backend in {"sim", "fake"} or (
        backend == "gloo"
        and subject.promises_counts
        and not subject.capabilities.needs_processes
    )
    takes = _instance_takes_counts(subject) if plays_here else None
    if takes is None and not subject.promises_counts:
        notes.append(
            f"not tried on {backend}: other numbers of micro-batches in later steps, since "
            f"only an instance shows whether {subject.name!r} has {COUNT_SETTER}(); play it "
            "on sim as well, or set varying_accumulations in its contract"
        )
    varies = subject.promises_counts if takes is None else takes
    capabilities = replace(subject.capabilities, varying_accumulations=varies)
    return replace(subject, capabilities=capabilities, may_announce=False)


def _instance_takes_counts(subject: Subject) -> bool | None:
    """Play one step; None if no instance came of it."""
    found: list[bool] = []

    @same_signature(subject.factory)
    def make(*given: Any) -> Any:
        made = subject.factory(*given)
        runs_them = subject.promises_counts and isinstance(made, RunsMicroBatches)
        found.append(takes_new_counts(made) or runs_them)
        return made

    SimBackend().run(_ONE_STEP, replace(subject, factory=make))
    return all(found) if found else None
