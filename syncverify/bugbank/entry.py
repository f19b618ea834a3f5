"""What the bank says about one defect."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, replace
from typing import Any

from syncverify.subject import Subject, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A defect that a public report describes, and what the harness should say of it.

    Its module's name is its id, and its module's folder its section.

    Attributes:
        subject: The synchronizer that has the defect.
        twin: The same without it.
        source: Where it was reported: `owner/project#number`.
        trigger: The smallest program that shows it, in words.
        silent: Whether real hardware gives a wrong gradient, or wastes time or memory,
            without an error or a hang.
        property: The property that it violates before all others.
        cause: What went wrong, as a report names it.
        uses_streams: Whether it takes streams from `torch.cuda`, and so runs on `sim` and
            GPUs only.
    """

    subject: type[Any]
    twin: type[Any]
    source: str
    trigger: str
    silent: bool
    property: str
    cause: str
    uses_streams: bool = False

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
        """Say what is wrong, in a sentence."""
        return (self.subject.__doc__ or "").partition("\n")[0]

    @builtins.property
    def _module(self) -> list[str]:
        return self.subject.__module__.split(".")

    @builtins.property
    def contract(self) -> tuple[object, ...]:
        """Return what the scenarios of its twin depend on."""
        fixed = self.fixed()
        return fixed.factory, fixed.capabilities

    def runs_on(self, backend: str) -> bool:
        """Tell whether a backend has what it needs."""
        return backend in {"sim", "nccl"} or not self.uses_streams

    def defect(self) -> Subject:
        """Return the defect, to be played."""
        found = resolve(self.subject)
        able = replace(found.capabilities, takes_cuda_streams=self.uses_streams)
        return replace(found, name=self.id, capabilities=able)

    def fixed(self) -> Subject:
        """Return the twin, to be played in the scenarios of the defect."""
        return replace(self.defect(), name=f"{self.id} (twin)", factory=self.twin)
