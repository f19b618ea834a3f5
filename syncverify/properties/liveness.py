"""Properties of reaching the end."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from syncverify.properties.judgement import Finding, Judgement
from syncverify.run import FaultKind


def every_rank_finishes(judgement: Judgement) -> Iterator[Finding]:
    """No rank ends early on a legal scenario.

    No call of the subject raises, and no process dies. Where a subject may refuse what a
    scenario contains, it may raise, and say in words what is wrong.

    Catches: errors on legal programs, crashes. Does not speak of ranks that go on for
    ever: `every_wait_completes` does.
    """
    fault = judgement.run.fault
    if fault is None or judgement.refused_step is None:
        yield from _fault(judgement, {"raised", "process_died"})
    elif not fault.is_clear:
        for rank in fault.ranks:
            summary = f"expected an error that says what is wrong, but {fault.summary}"
            evidence = {"kind": fault.kind, "details": list(fault.details)}
            yield Finding("unclear_error", summary, rank, None, evidence)


def every_wait_completes(judgement: Judgement) -> Iterator[Finding]:
    """Every wait ends, and so does every loop.

    No ranks wait for each other in a circle or for one that has ended, none keeps to
    itself for ever, and none polls or communicates without an end.

    Catches: a rank that skips a collective, communicators waited for in different orders,
    completion that nobody brings about. Does not promise an end within a time: what is
    slow and moves on is fine.
    """
    yield from _fault(judgement, {"deadlock", "never_returns", "step_bound"})


def _fault(judgement: Judgement, kinds: Collection[FaultKind]) -> Iterator[Finding]:
    fault = judgement.run.fault
    if fault is None or fault.kind not in kinds:
        return
    for rank in fault.ranks:
        yield Finding(
            f"{fault.kind}_{fault.identity}" if fault.identity else fault.kind,
            fault.summary,
            rank,
            None,
            {"kind": fault.kind, "details": list(fault.details)},
        )
