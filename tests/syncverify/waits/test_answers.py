"""The answers as a table, as lines, as JSON and as a page; those of several subjects; their time."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from syncverify.scenario.small_scope import SmallScope
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    Moment,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.source_lines import NoLine, SourceLine
from syncverify.trace.sync_points import PointKind, SyncPoint
from syncverify.waits.answers import (
    Answer,
    AnsweredWaits,
    HarmWithout,
    NeedWord,
    PlayedSubject,
)
from syncverify.waits.exposed_time import Link, microseconds
from syncverify.waits.joined import joined
from syncverify.waits.page import page_of
from syncverify.waits.text import bound_lines, cells_of, verdict


def at(number: int) -> SyncPoint:
    return SyncPoint("stream_wait", SourceLine("sync.py", number, "join"))


HARM = HarmWithout(
    "wait_orders_reads_after_reduce", "read_before_reduced", "sv2-x", is_of_model=True,
    outcome="gradient of 'p0' is wrong", expected=(3.0,), observed=(float("inf"),),
)  # fmt: skip
NEEDED = Answer(at(1), "main.wait_stream(side)", "needed", 4, HARM)
EXTRA = Answer(at(2), "side.wait_stream(<main>)", "superfluous", 3, None, 12.25)
NEVER = Answer(at(3), "a.wait_event(b)", "undecided", 0, reason="never ran")
MINE = PlayedSubject("mine", 40, 2, 3, 1, ("sv2-w", "sv2-x", "sv2-y", "sv2-z"))
WAITS = AnsweredWaits((MINE,), SmallScope(), 4, 0, Link(10, 25), (NEEDED, EXTRA, NEVER))


def test_each_answer_says_what_is_known() -> None:
    assert [cells_of(each)[2:] for each in WAITS.answers] == [
        (
            "needed",
            (
                "gradient of 'p0' is wrong; breaks wait_orders_reads_after_reduce "
                "(read_before_reduced)"
            ),
        ),
        ("superfluous", "holds in 3 scenarios; a step ends up to 12.2 us sooner"),
        ("undecided", "no scenario ran it"),
    ]
    assert verdict(WAITS) == (
        "3 WAITS of mine: 1 needed, 1 superfluous, 1 undecided (1 that no scenario ran)"
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            replace(NEEDED, harm=replace(HARM, outcome="", is_of_model=False)),
            (
                "breaks wait_orders_reads_after_reduce (read_before_reduced) in a play without "
                "the call; no play shows a wrong gradient"
            ),
        ),
        (
            replace(EXTRA, exposed_microseconds=0.04),
            "holds in 3 scenarios; no step ends sooner on this link",
        ),
    ],
)
def test_what_is_not_known_or_takes_no_time_is_said(
    answer: Answer, expected: str
) -> None:
    assert cells_of(answer)[3] == expected


def test_several_superfluous_waits_are_to_be_removed_one_at_a_time() -> None:
    """Of two waits that do the same, each is superfluous beside the other."""
    both = replace(WAITS, answers=(EXTRA, replace(EXTRA, point=at(4))))
    advice = "one wait was taken out at a time"
    assert any(line.startswith(advice) for line in bound_lines(both))
    assert not any(line.startswith(advice) for line in bound_lines(WAITS))


def test_the_bound_and_the_machine_are_printed() -> None:
    assert [*bound_lines(WAITS)] == [
        (
            "bound: all 40 scenarios of ranks=2,parameters=3,buckets=2,micro_batches=2,"
            "steps=2,words=event, and 2 drawn on up to 4 ranks with seed 0"
        ),
        "  3 scenarios of them refused by the subject, as its contract allows",
        "  1 scenario of them left out, which the simulated machine refuses",
        (
            "  4 scenarios of them left out, which break with all waits; the first: "
            "syncverify replay sv2-w mine"
        ),
        "times: a link of 10 us and 25 GB/s, 5 us an operator, 2 us to queue it",
    ]


def test_json_has_no_number_that_json_lacks() -> None:
    data = json.loads(json.dumps(WAITS.to_json(), allow_nan=False))
    assert [each["word"] for each in data["waits"]] == [
        "needed",
        "superfluous",
        "undecided",
    ]
    assert data["waits"][0]["harm"]["observed"] == ["inf"]
    assert data["subjects"][0]["scenarios"] == 40


@pytest.mark.parametrize(
    ("answers", "banner", "num_in_colour"),
    [((NEEDED,), "right", 0), ((NEEDED, EXTRA), "open", 1), ((NEVER,), "open", 0)],
    ids=["all are needed", "one is to be removed", "one is undecided"],
)
def test_the_page_is_green_where_nothing_is_to_do(
    answers: tuple[Answer, ...], banner: str, num_in_colour: int
) -> None:
    page = page_of(replace(WAITS, answers=answers))
    assert f'class="verdict {banner}"' in page
    assert page.count('<tr class="superfluous">') == num_in_colour
    assert ("Each row in colour is superfluous" in page) == (num_in_colour > 0)


def of_line(
    number: int, word: NeedWord, count: int = 1, kind: PointKind = "stream_wait"
) -> Answer:
    point = SyncPoint(kind, SourceLine("sync.py", number, "join"))
    return Answer(point, "", word, count, exposed_microseconds=float(count))


def test_a_line_is_needed_if_one_subject_needs_it() -> None:
    needed, extra = of_line(1, "needed", 2), of_line(1, "superfluous", 5)
    both = replace(needed, num_scenarios=7, exposed_microseconds=5.0)
    assert joined([needed, extra]) == joined([extra, needed]) == (both,)


def test_a_line_that_one_subject_does_not_decide_is_undecided() -> None:
    assert [
        each.word
        for each in joined([of_line(1, "superfluous"), of_line(1, "undecided")])
    ] == ["undecided"]


def test_a_line_that_one_subject_never_ran_has_the_word_of_the_other() -> None:
    """The kind of a call that never ran is read from the source, and may be another one."""
    never = of_line(1, "undecided", 0, "work_wait"), of_line(2, "undecided", 0)
    ran = of_line(1, "superfluous"), of_line(2, "needed")
    assert joined([*never, *ran]) == joined([*ran, *never]) == ran


def test_a_line_that_no_subject_ran_stays_undecided() -> None:
    never = of_line(2, "undecided", 0)
    assert joined([never, of_line(1, "needed"), never]) == (of_line(1, "needed"), never)


NOW = Moment("backward", 0, 0)
LINK = Link(latency_microseconds=100, gigabytes_per_second=1)
NOWHERE = NoLine.UNKNOWN


def work(stream: str = "default") -> Access:
    return Access(NOW, stream, "aten.mul", (), (), NOWHERE)


def launch(numel: int = 0, stream: str = "default") -> CollectiveLaunch:
    return CollectiveLaunch(
        NOW, (0, 1), 0, "all_reduce", "SUM", "float32", numel, (), (), NOWHERE,
        stream=stream, communication_stream="nccl",
    )  # fmt: skip


WAIT = CollectiveWait(NOW, (0, 1), 0)


def time_of(*traces: Sequence[TraceRecord]) -> float:
    return microseconds(traces, LINK)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ([], 0),
        ([work()], 2 + 5),
        ([work(), work()], 2 + 5 + 5),
        ([work(), work("side")], 2 + 2 + 5),
        ([work(), Mark(NOW, "default", 1, NOWHERE), StreamWait(NOW, "side", 1, NOWHERE),
            work("side")], 2 + 5 + 5),
        ([work(), Mark(NOW, "default", 1, NOWHERE), HostWait(NOW, 1, NOWHERE),
            work("side")], 2 + 5 + 2 + 5),
        # An event that was never recorded orders nothing.
        ([work(), StreamWait(NOW, "side", 1, NOWHERE), work("side")], 2 + 2 + 5),
    ],
)  # fmt: skip
def test_work_of_one_rank(trace: list[TraceRecord], expected: float) -> None:
    assert time_of(trace) == expected


def test_a_collective_ends_a_latency_and_its_bytes_after_the_last_start() -> None:
    # The launch starts at 7 us, and sends 4000 bytes at 1000 a microsecond.
    late = [work(), launch(1000)]
    assert time_of([launch(1000), WAIT, work()], late) == 7 + 100 + 4 + 5
    assert time_of([launch(1000), work()], late) == 7 + 100 + 4


def test_a_rank_that_never_comes_ends_nothing() -> None:
    assert time_of([launch(), WAIT, work()], []) == 2 + 100 + 5
