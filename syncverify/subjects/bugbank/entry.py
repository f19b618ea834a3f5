"""The record of a program that a harness is tried on: a planted defect, or a right program."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.settings import DEFAULT_RANKS
from syncverify.subjects.subject import Subject, resolve

Marked = TypeVar("Marked", bound=type[Any])
MARK = "__planted__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A synchronizer with a planted defect, or a right one, and the verdict expected of a harness.

    Attributes:
        name: Name that `--only` takes.
        family: Kind of the mistake, or the unusual thing of a right program.
        twin: The same synchronizer without the defect; None where there is none.
        source: The report, as `owner/project#number`, or what the program imitates.
        trigger: The smallest program that shows the defect, in words; of a right program the
            reason that it is right.
        violates: Name of the property that the harness has to name first; empty where any
            violation shows the defect, and for a right program.
        causes: Causes that name the mistake: the usual one, then that of scenarios in which the
            same mistake shows otherwise.
        is_wrong: Whether some training program gets a wrong result.
        silent: Whether real hardware gives a wrong gradient, or wastes time or memory,
            without an error or a hang.
        uses_streams: Whether the synchronizer takes streams from `torch.cuda`, and so runs
            on `sim`, `streams` and GPUs only.
        contract: Contract under which it is played; None takes that of the subject.
        max_ranks: Largest world of a scenario, as for `--ranks`.
    """

    name: str
    family: str
    subject: type[Any]
    twin: type[Any] | None = None
    source: str = ""
    trigger: str = ""
    violates: str = ""
    causes: tuple[str, ...] = ()
    is_wrong: bool = True
    silent: bool = True
    uses_streams: bool = False
    contract: Capabilities | None = None
    max_ranks: int = DEFAULT_RANKS

    @property
    def mechanism(self) -> str:
        """Describe the program in a sentence."""
        return (self.subject.__doc__ or "").partition("\n")[0]

    @property
    def identity(self) -> tuple[str, str]:
        """Return the property and the usual cause of its violation."""
        return self.violates, self.causes[0]

    def runs_on(self, backend: str) -> bool:
        """Tell whether a backend can play the entry."""
        return backend in {"sim", "streams", "nccl"} or not self.uses_streams

    def defect(self) -> Subject:
        """Return the subject, to be played."""
        found = resolve(self.subject, self.contract)
        if self.contract is not None:
            return replace(found, name=self.name)
        capabilities = replace(found.capabilities, takes_cuda_streams=self.uses_streams)
        return replace(found, name=self.name, capabilities=capabilities)

    def fixed(self) -> Subject:
        """Return the twin, to be played in the scenarios of the defect."""
        assert self.twin is not None, "an entry that is played with its twin has one"
        return replace(self.defect(), name=f"{self.name} (twin)", factory=self.twin)

    @property
    def shared_scenarios(self) -> tuple[object, ...]:
        """Return the key of twins that share scenarios: factory and capabilities."""
        fixed = self.fixed()
        return fixed.factory, fixed.capabilities


def marking(make: Callable[[type[Any]], Entry]) -> Callable[[Marked], Marked]:
    """Return a decorator that registers what `make` says of a class, beside what is registered."""

    def mark(subject: Marked) -> Marked:
        setattr(subject, MARK, (make(subject), *vars(subject).get(MARK, ())))
        return subject

    return mark


def reported(
    name: str,
    source: str,
    *,
    trigger: str,
    violates: str,
    cause: str,
    or_cause: str | None = None,
    twin: type[Any] | None = None,
    **fields: Any,
) -> Callable[[Marked], Marked]:
    """Mark a class as a reported defect, by fields of `Entry`; the base class is the usual twin."""
    return marking(
        lambda subject: Entry(
            name=name,
            # `bugbank.FAMILY`, or a module of that folder
            family=subject.__module__.rpartition("bugbank.")[2]
            .split(".")[0]
            .replace("_", "-"),
            subject=subject,
            twin=twin or subject.__mro__[1],
            source=source,
            trigger=trigger,
            violates=violates,
            causes=(cause,) if or_cause is None else (cause, or_cause),
            uses_streams=getattr(subject, "uses_streams", False),
            **fields,
        )
    )
