"""The answers about waits as a table, as lines, as JSON and as a page."""

import json
from dataclasses import replace

import pytest

from syncverify.explain.waits.answers import (
    Answer,
    AnsweredWaits,
    HarmWithout,
    PlayedSubject,
)
from syncverify.explain.waits.exposed_time import Link
from syncverify.report.html.render import rendered
from syncverify.report.waits import (
    account_of,
    bound_lines,
    cells_of,
    drawn,
    verdict,
)
from syncverify.scenario.small_scope import SmallScope
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.sync_points import SyncPoint


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
    waits = replace(WAITS, answers=answers)
    page = rendered(account_of(waits), drawn(waits))
    assert f'class="verdict {banner}"' in page
    assert page.count('<tr class="superfluous">') == num_in_colour
    assert ("Each row in colour is superfluous" in page) == (num_in_colour > 0)
