"""Remarks on a run: what may be meant, and is often a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Set

from syncverify.judge.compared_clocks import ComparedClock, compared_clocks
from syncverify.judge.forgotten_handles import ForgottenHandle, forgotten_handles
from syncverify.judge.ignored_tags import IgnoredTag, ignored_tags
from syncverify.judge.swapped_collectives import (
    SwappedCollectives,
    swapped_collectives,
)
from syncverify.trace.run import Run

Remark = ComparedClock | ForgottenHandle | IgnoredTag | SwappedCollectives


def remarks_on(run: Run, guilty_lines: Set[object]) -> Iterator[Remark]:
    """Yield the remarks on a run that name no line of a violation."""
    found: list[Remark] = [
        *forgotten_handles(run),
        *swapped_collectives(run),
        *ignored_tags(run),
        *compared_clocks(run),
    ]
    for each in found:
        if guilty_lines.isdisjoint(each.lines):
            yield each
