"""Properties of reaching the end."""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.properties.judgement import Finding, Judgement


def every_rank_finishes(judgement: Judgement) -> Iterator[Finding]:
    """Every rank plays a legal scenario to its end.

    No call of the subject raises, every wait ends, no process dies, and ranks that meet
    in a collective agree on what it is.

    Catches: a rank that skips a collective, collectives in different orders, waits that
    nothing ends, errors on legal programs.
    """
    fault = judgement.run.fault
    if fault is None:
        return
    for rank in fault.ranks:
        yield Finding(
            f"{fault.kind}_{fault.identity}" if fault.identity else fault.kind,
            fault.summary,
            rank,
            None,
            {"kind": fault.kind, "details": list(fault.details)},
        )
