"""The rank that leaves the order of its peers: it skipped a collective, or has one too many."""

from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist

import syncverify.trace.source_files as source_files
from syncverify import simulate
from syncverify.judge.properties.disagreements import Odd, odd_rank, own_line
from syncverify.trace.records import CollectiveLaunch, Moment
from syncverify.trace.source_lines import SourceLine
from tests.syncverify.judge.properties.handmade_traces import launch

TORCH = SourceLine(source_files._TORCH + "/fsdp.py", 7, "foreach_all_gather")


def row(words: str, num_ranks: int) -> list[CollectiveLaunch]:
    """Return launches of a rank, one a letter: a line of one function, or with `'` of a helper."""
    return [
        launch(
            "dp",
            tuple(range(num_ranks)),
            n,
            numel=ord(word[0]),
            source=SourceLine("a.py", ord(word[0]), word[1:] or "train"),
        )
        for n, word in enumerate(words.split())
    ]


def found(*words: str) -> Odd | None:
    """Judge the first collective in which the rows disagree."""
    rows = dict(enumerate(row(own, len(words)) for own in words))
    for launches in zip(*rows.values(), strict=False):
        if len({each.numel for each in launches}) > 1:
            return odd_rank(dict(enumerate(launches)), rows)
    raise AssertionError("all agree")


def said(*words: str) -> tuple[int, str, str] | None:
    """Return the odd rank, the collective that it skipped, and the one that is too many."""
    odd = found(*words)
    if odd is None:
        return None
    skipped, extra = (chr(e.numel) if e else "" for e in (odd.skipped, odd.extra))
    return odd.rank, skipped, extra


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # The others go on as the rank does without it, or the rank as they do.
        (("x y", "y", "y"), (0, "", "x")),
        (("b'f x'f y'f z'f", "b'f y'f", "b'f y'f"), (0, "", "x")),
        (("b'f z'f", "b'f y'f z'f", "b'f y'f"), (0, "y", "")),
        # Nothing follows: lines of one function that nobody has passed.
        (("a x", "a y", "a y"), (0, "", "x")),
        (("a y", "a x", "a x"), (0, "x", "")),
        (("a z a x", "a z a z", "a z a z"), (0, "", "x")),
        (("b z b z a", "b z b z b", "b z b z b"), (0, "", "a")),
        (("a b a b x", "a b a b a", "a b a b a"), (0, "a", "x")),
        (("a'f x'f", "a'f y'g", "a'f y'g"), (0, "y", "x")),
        # The order before.
        (("a b c a c", "a b c a b", "a b c a b"), (0, "b", "")),
        (("a b c a b b", "a b c a b c", "a b c a b c"), (0, "", "b")),
        # A loop that goes round once more looks like a line that was skipped.
        (("a a b a a a", "a a b a a b", "a a b a a b"), (0, "b", "a")),
        (("a a", "a b", "a b"), (0, "b", "a")),
        # Two ranks.
        (("a b c a b b", "a b c a b c"), (0, "", "b")),
        (("a b c a b c", "a b c a b b"), (1, "", "b")),
        (("a b c a c", "a b c a b"), (0, "b", "")),
        (("a b b", "a b a"), (0, "a", "b")),
        (("a z a x", "a z a z"), (0, "", "x")),
        (("a x", "a y"), None),
        (("a'f x'f y'g", "a'f y'g"), (0, "", "x")),
        (("a a b a a a", "a a b a a b"), None),
    ],
)
def test_a_rank_that_leaves_the_order_is_named_with_what_is_certain(
    rows: Sequence[str], expected: object
) -> None:
    assert said(*rows) == expected


def test_a_place_of_the_step_tells_before_lines_do() -> None:
    earlier, later = (
        launch("dp", (0, 1, 2), 0, numel=n, moment=Moment("wait", step))
        for n, step in ((3, 0), (4, 1))
    )
    one = {0: earlier, 1: later, 2: later}
    assert odd_rank(one, {r: [e] for r, e in one.items()}) == Odd(0, None, earlier)
    other = {0: later, 1: earlier, 2: earlier}
    assert odd_rank(other, {r: [e] for r, e in other.items()}) == Odd(0, earlier, None)


def test_a_line_of_torch_stands_for_the_line_that_called_it() -> None:
    mine = SourceLine("train.py", 3, "train")
    assert own_line(launch("dp", (0, 1), 0, source=TORCH, callers=(mine,))) == mine
    assert own_line(launch("dp", (0, 1), 0, source=TORCH)) == TORCH
    assert own_line(launch("dp", (0, 1), 0, source=mine, callers=(TORCH,))) == mine


def test_two_lines_that_call_one_line_of_torch_are_two_collectives() -> None:
    calls = {
        rank: launch(
            "dp",
            (0, 1, 2),
            0,
            numel=4 + (rank == 0),
            source=TORCH,
            callers=(SourceLine("train.py", 3 + (rank == 0), "train"),),
        )
        for rank in range(3)
    }
    odd = odd_rank(calls, {rank: [each] for rank, each in calls.items()})
    assert odd == Odd(0, calls[1], None)


def test_a_rank_that_agrees_from_another_line_is_not_named() -> None:
    lines = [1, 1, 2, 1]
    calls = {
        rank: launch(
            "dp",
            (0, 1, 2, 3),
            0,
            numel=4 + (rank == 3),
            source=SourceLine("a.py", number, "train"),
        )
        for rank, number in enumerate(lines)
    }
    odd = odd_rank(calls, {rank: [each] for rank, each in calls.items()})
    assert odd.rank == 3


def logs_on_one_rank() -> None:
    for step in range(3):
        works = [dist.all_reduce(torch.ones(4), async_op=True)]
        if step == 1 and dist.get_rank() == 2:
            works.append(dist.all_reduce(torch.ones(2), async_op=True))
        works.append(dist.all_reduce(torch.ones(3), async_op=True))
        for work in works:
            work.wait()


def test_a_program_with_a_collective_too_many_on_one_rank_names_that_rank() -> None:
    report = simulate(logs_on_one_rank, 4, device="cpu")
    words = (
        ": rank 2 has one more: all_reduce SUM of 2 x float32 over ranks [0, 1, 2, 3]"
    )
    assert words in str(report)
