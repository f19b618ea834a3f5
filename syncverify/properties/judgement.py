"""What a property looks at, and how it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from syncverify.features import may_raise
from syncverify.oracle import Reference
from syncverify.ordering.happens_before import Semantics
from syncverify.ordering.remedies import Disorder, disorders
from syncverify.run import RankRun, Run
from syncverify.scenario import Scenario
from syncverify.trace import Event
from syncverify.violation import Violation


@dataclass(frozen=True)  # without slots: `cached_property` needs a dictionary
class Judgement:
    """A run beside what it should have been.

    Attributes:
        scenario: What was played.
        run: What came out.
        reference: The oracle's gradients.
        again: The same scenario and schedule, played once more; None if it was not.
    """

    scenario: Scenario
    run: Run
    reference: Reference
    again: Run | None = None

    @property
    def disorders(self) -> list[Disorder]:
        """What no stream, event or host wait orders; found once for all properties."""
        return self._read_and_found[1]

    @property
    def semantics(self) -> Semantics:
        """How the trace is read that shows the disorders."""
        return self._read_and_found[0]

    @cached_property
    def _read_and_found(self) -> tuple[Semantics, list[Disorder]]:
        """Read the trace, and find disorders.

        Note [Streams, then gloo]
            A trace says what the host asked for, in order, and so can be read twice: as
            streams on a GPU would run it, and as gloo would, whose host runs every
            operator itself and blocks in `wait()`. Streams leave almost everything open
            that gloo does, so gloo is asked only where they have nothing to say.
        """
        traces = [self._owed(rank_run) for rank_run in self.run.ranks]
        found = disorders(traces, "stream")
        if found or self.reference.capabilities.needs_nccl:
            return "stream", found
        return "host", disorders(traces, "host")

    @property
    def refused_step(self) -> int | None:
        """The step in which the subject raised what it may raise, if it did."""
        fault = self.run.fault
        if fault is None or fault.kind != "raised":
            return None
        capabilities = self.reference.capabilities
        may_refuse = may_raise(self.scenario, capabilities, fault.step)
        return fault.step if may_refuse else None

    def was_refused(self, step: int) -> bool:
        """Tell whether the subject raised in a step, as it may: nobody uses its gradients."""
        return step == self.refused_step

    def _owed(self, rank_run: RankRun) -> Sequence[Event]:
        """Leave out the step that was refused: its gradients are nobody's any more."""
        refused, events = self.refused_step, rank_run.events
        if refused is None:
            return events
        return [event for event in events if event.moment.step < refused]


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a property does not hold.

    Attributes:
        cause: Short name of what went wrong.
        summary: One sentence: expectation, fact, place.
        rank: Where it was seen; None for all of them.
        parameter: The parameter concerned, if one is.
        evidence: Plain JSON values.
    """

    cause: str
    summary: str
    rank: int | None = None
    parameter: str | None = None
    evidence: dict[str, Any] | None = None


Check = Callable[[Judgement], Iterator[Finding]]


def merge(name: str, findings: Iterable[Finding]) -> list[Violation]:
    """Return one violation per cause for the findings of one property.

    The first finding of a cause gives summary and evidence; the others add their ranks
    and parameters.
    """
    by_cause: dict[str, list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault(finding.cause, []).append(finding)
    return [
        Violation(
            property=name,
            cause=cause,
            summary=found[0].summary,
            ranks=tuple(sorted({f.rank for f in found if f.rank is not None})),
            parameters=tuple(dict.fromkeys(f.parameter for f in found if f.parameter)),
            evidence=found[0].evidence or {},
        )
        for cause, found in by_cause.items()
    ]
