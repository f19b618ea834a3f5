"""An entry of the bank: one reported defect, and the verdict expected of the harness."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from syncverify.subjects.subject import Subject, resolve

Defective = TypeVar("Defective", bound=type[Any])
MARK = "__bank_entry__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A defect that a public report describes, and the verdict expected of the harness.

    The name of its module is its id, the folder of its module its section.

    Attributes:
        subject: The defective synchronizer.
        twin: The same synchronizer without the defect.
        source: The report: `owner/project#number`.
        trigger: The smallest program that shows the defect, in words.
        silent: Whether real hardware gives a wrong gradient, or wastes time or memory,
            without an error or a hang.
        property: Name of the property that the harness has to name first.
        causes: Causes that name the mistake: the usual one, then that of scenarios in which the
            same mistake shows otherwise.
        uses_streams: Whether the synchronizer takes streams from `torch.cuda`, and so runs
            on `sim`, `streams` and GPUs only.
    """

    subject: type[Any]
    twin: type[Any]
    source: str
    trigger: str
    silent: bool
    property: str
    causes: tuple[str, ...]
    uses_streams: bool

    @builtins.property
    def id(self) -> str:
        """Return the name that `syncverify bank --only` takes."""
        return self._module[-1].replace("_", "-")

    @builtins.property
    def section(self) -> str:
        """Return the name of the part of the bank that it is in."""
        return self._module[-2].replace("_", "-")

    @builtins.property
    def mechanism(self) -> str:
        """Describe the mistake in a sentence."""
        return (self.subject.__doc__ or "").partition("\n")[0]

    @builtins.property
    def _module(self) -> list[str]:
        return self.subject.__module__.split(".")

    @builtins.property
    def contract(self) -> tuple[object, ...]:
        """Return the key of twins that share scenarios: factory and capabilities."""
        fixed = self.fixed()
        return fixed.factory, fixed.capabilities

    def runs_on(self, backend: str) -> bool:
        """Tell whether a backend can play the entry."""
        return backend in {"sim", "streams", "nccl"} or not self.uses_streams

    def defect(self) -> Subject:
        """Return the defect, to be played."""
        found = resolve(self.subject)
        capabilities = replace(found.capabilities, takes_cuda_streams=self.uses_streams)
        return replace(found, name=self.id, capabilities=capabilities)

    def fixed(self) -> Subject:
        """Return the twin, to be played in the scenarios of the defect."""
        return replace(self.defect(), name=f"{self.id} (twin)", factory=self.twin)


def reported(
    source: str,
    *,
    trigger: str,
    violates: str,
    cause: str,
    or_cause: str | None = None,
    silent: bool = True,
    uses_streams: bool = False,
    twin: type[Any] | None = None,
) -> Callable[[Defective], Defective]:
    """Mark a class as a reported defect, by fields of `Entry`; the base class is the usual twin."""

    def mark(subject: Defective) -> Defective:
        entry = Entry(
            subject=subject,
            twin=twin or subject.__mro__[1],
            source=source,
            trigger=trigger,
            silent=silent,
            property=violates,
            causes=(cause,) if or_cause is None else (cause, or_cause),
            uses_streams=uses_streams,
        )
        setattr(subject, MARK, entry)
        return subject

    return mark
