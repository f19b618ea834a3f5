"""What is judged of any program: nothing here reads a scenario."""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.judge.evidence import ended
from syncverify.judge.ordering.races import EarlyFree, Race, Unordered
from syncverify.judge.ordering.remedies import Disorder, disorders
from syncverify.judge.properties.ordering_words import evidence, summary
from syncverify.judge.violation import Violation
from syncverify.trace.run import Run


def judge_any(run: Run, *, is_for_nccl: bool) -> list[Violation]:
    """Judge what ranks did, whatever they ran."""
    return [*_faults(run), *_disorders(run, is_for_nccl=is_for_nccl)]


def _faults(run: Run) -> Iterator[Violation]:
    fault = run.fault
    if fault is None:
        return
    name = {
        "raised": "every_rank_finishes",
        "process_died": "every_rank_finishes",
        "collective_mismatch": "collectives_match_across_ranks",
    }.get(fault.kind, "every_wait_completes")
    cause = f"{fault.kind}_{fault.identity}" if fault.identity else fault.kind
    yield Violation(name, cause, fault.summary, fault.ranks, (), ended(fault))


def _disorders(run: Run, *, is_for_nccl: bool) -> Iterator[Violation]:
    traces = [rank.trace for rank in run.ranks]
    found = disorders(traces)
    if not (found or is_for_nccl):
        found = disorders(traces, "host")
    by_lines: dict[object, list[Disorder]] = {}
    for each in found:
        by_lines.setdefault(_lines(each.found[0]), []).append(each)
    for alike in by_lines.values():
        one = alike[0]
        shown = one.found[0]
        name, cause = (
            ("memory_outlives_its_streams", "freed_in_use")
            if isinstance(shown, EarlyFree)
            else ("streams_order_shared_memory", "race")
        )
        yield Violation(
            name,
            cause,
            summary(shown, one, None),
            tuple(sorted({pair.rank for each in alike for pair in each.found})),
            (),
            evidence(shown, one, None, traces[shown.rank]),
            shown,
        )


def _lines(found: Unordered) -> tuple[object, ...]:
    if isinstance(found, Race):
        return found.first.source, found.second.source
    return found.use.source, found.freed.stream
