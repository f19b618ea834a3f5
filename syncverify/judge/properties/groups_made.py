"""The groups that ranks make: every rank makes the same ones, in the same order.

Note [Names of groups]
    torch has every rank of the world call `new_group` for each group, members or not, in one
    order. It waits for nobody there, unless TORCH_DIST_INIT_BARRIER=1: it names a group by the
    number of the rank's call, and members meet in the store under that name. Where ranks
    differ in the n-th call, two groups have one name, or one group has two names: ranks wait
    for ever, or connect to ranks of another group. With `use_local_synchronization=True` the
    name comes from the ranks, and members alone call.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.judge.cause import Mistake
from syncverify.judge.evidence import Disagreement, Event
from syncverify.judge.violation import Violation, finding
from syncverify.trace.records import GroupMade
from syncverify.trace.run import Run

GROUPS_DIFFER = Mistake(
    "groups_differ",
    "ranks make different groups, or make them in different orders",
    "let each rank call new_group() for each group, its own or not, in the same order; or "
    "pass use_local_synchronization=True, with which the members alone call it",
)
_RULE = "torch names a group by the number of the call, so every rank makes each group"


def groups_that_differ(run: Run) -> Iterator[Violation]:
    """Find the first group that two ranks do not make alike; later names are out of step."""
    made = [
        [each for each in own.trace if type(each) is GroupMade] for own in run.ranks
    ]
    for number in range(max(map(len, made), default=0)):
        calls = {
            rank: own[number] for rank, own in enumerate(made) if number < len(own)
        }
        (one, first), *_ = calls.items()
        other = next((r for r in calls if calls[r].ranks != first.ranks), None)
        if other is not None:
            yield from _differing(number + 1, {one: first, other: calls[other]})
            return
        if run.fault is None and len(calls) < len(made):
            missing = next(r for r in range(len(made)) if r not in calls)
            yield _missing(number + 1, missing, one, first)
            return


def _differing(number: int, calls: dict[int, GroupMade]) -> Iterator[Violation]:
    summary = f"ranks {[*calls]} make different groups by call {number} of new_group(): {_RULE}"
    evidence = Disagreement(events=tuple(_event(r, calls[r]) for r in calls))
    for rank in calls:
        yield finding("groups_differ", summary, rank, None, evidence)


def _missing(number: int, missing: int, rank: int, made: GroupMade) -> Violation:
    summary = (
        f"rank {missing} makes fewer groups than rank {rank}: it lacks call {number} of "
        f"new_group(); {_RULE}"
    )
    evidence = Disagreement(events=(_event(rank, made),))
    return finding("groups_differ", summary, missing, None, evidence)


def _event(rank: int, made: GroupMade) -> Event:
    return Event(f"rank {rank}: {made}", made)
