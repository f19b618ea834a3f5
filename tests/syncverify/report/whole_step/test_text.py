"""A comparison with one rank as text, as a table of layouts, and as a page."""

import math
import re
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
import torch

from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.outcome import (
    FoundMistake,
    LayoutPlay,
    Parity,
    worst_errors,
)
from syncverify.judge.causes import CAUSES
from syncverify.judge.causes.of_trainings import OF_TRAININGS
from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.causes import (
    LacksSum,
    MicroBatchesWeighted,
    NormWithout,
    OtherCoefficient,
    RanksScaled,
    ReducedOver,
    Scaled,
    StepMistake,
    TermsWeighted,
    Weighted,
    WrongQuantity,
)
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.values import Quantity, StateName
from syncverify.report.html.render import rendered
from syncverify.report.whole_step.cause_words import words_of
from syncverify.report.whole_step.page import (
    LayoutCell,
    account_of,
    drawn,
    rows_of,
)
from syncverify.report.whole_step.shown import some_names
from syncverify.report.whole_step.text import headline, play_words

GRADIENT, STATE = Quantity.GRADIENT, Quantity.STATE
NEAR = 1 + 2e-9


def compared(got: float, right: float = 1.0, name: str = "w") -> ComparedValue:
    ours, theirs = (
        {0: torch.tensor([each], dtype=torch.float64)} for each in (got, right)
    )
    return ComparedValue(GRADIENT, 0, name, ours, theirs, 1e-12)


def lacks_sum(*values: ComparedValue) -> WrongQuantity:
    cause = LacksSum(frozenset({"tp"}))
    return WrongQuantity(GRADIENT, 1, cause, values, 9)


def play_of(axis: str, *values: ComparedValue, num_wrong: int = 0) -> LayoutPlay:
    return LayoutPlay(
        Layout.of({axis: 2}),
        1,
        Simulation("", 2, "cuda", 0),
        num_values=len(values),
        worst=worst_errors(values),
        findings=(lacks_sum(*values[:num_wrong]),) if num_wrong else (),
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            (compared(1.0), compared(0.0, 0.0), compared(math.inf, math.inf)),
            "right, 3 values, all equal",
        ),
        # Zero in exact arithmetic: a difference is no large part of it.
        (
            (compared(3e-14, 1e-20, "zero"), compared(1.0)),
            "right, 2 values, off by at most 3.0 % of what rounding explains",
        ),
    ],
)
def test_verdict_of_right_values_gives_their_share_of_rounding(
    values: tuple[ComparedValue, ...], text: str
) -> None:
    assert play_words(play_of("dp", *values)) == f"1 micro-batch: {text}"


def test_headline_has_values_cause_layout_step_and_rank() -> None:
    wrong = lacks_sum(*(compared(2.0, name=name) for name in ("b.0.w", "b.1.w")))
    found = FoundMistake(wrong, Layout.of({"dp": 1, "tp": 2}), 2, (), None, ())
    assert headline(found) == (
        "gradient of b.{0-1}.w: lacks the sum over `tp` (dp=1,tp=2, 2 micro-batches, step 2, "
        "rank 0)"
    )


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([f"b.{i}.norm.weight" for i in (0, 1, 2, 5)], "b.{0-2,5}.norm.weight"),
        (["b.1.experts.0", "b.1.experts.1"], "b.1.experts.0, b.1.experts.1"),
        (
            [f"b.{i}.{j}" for i in (0, 1) for j in "abcd"],
            "b.{0-1}.a, b.{0-1}.b, and 4 more",
        ),
    ],
)
def test_names_that_differ_in_the_layer_number_are_one(
    names: list[str], text: str
) -> None:
    assert some_names(names, 2) == text


# A value of each type of facts; the first flags are true.
FACTS: dict[str, tuple[object, object]] = {
    "bool": (True, False),
    "float": (2.0, 0.5),
    "AxesOfFactor": (frozenset({frozenset({"dp"})}), frozenset()),
    "frozenset[str]": (frozenset({"dp"}), frozenset({"tp"})),
    "int": (1, 2),
    "Joined": (causes.Joined.MEAN, causes.Joined.SUM),
    "Mapping[int, float]": ({0: 0.5}, {1: 0.5}),
    "NormMistake | None": (NormWithout(("w",)), None),
    "object": (1, 2),
    "str": ("lr", "eps"),
    "tuple[SourceLine, ...]": ((), ()),
    "tuple[float, ...]": ((0.25, 0.5, 1.0), (0.0, 1.0)),
    "tuple[int, ...]": ((1, 1), (1, 0)),
    "tuple[str, ...]": (("w",), ("v", "w")),
    "tuple[tuple[str, SumOfRight], ...]": ((("w", (("v", 1.0),)),), ()),
    "tuple[tuple[int, float], ...]": (((0, 2.0),), ()),
    "tuple[tuple[str, tuple[SourceLine, ...]], ...]": ((("F", ()), ("G", ())), ()),
    "tuple[tuple[str, float], ...]": ((("main", 2.0),), ()),
}


def samples() -> Iterator[StepMistake]:
    """Yield two causes of each class, with other flags."""
    classes = (each for each in vars(causes).values() if isinstance(each, type))
    for each in classes:
        if issubclass(each, StepMistake) and not each.__subclasses__():
            for which in (0, 1):
                yield each(*(FACTS[str(field.type)][which] for field in fields(each)))


def test_each_cause_has_a_row_whose_places_its_facts_fill() -> None:
    """A missing row or an unknown fact is a KeyError while a report is printed."""
    said = {
        (cause.kind, "".join((words.meaning, words.hint)))
        for cause in samples()
        for words in (words_of(cause, quantity) for quantity in Quantity)
    }
    kinds = {kind for kind, _ in said}
    assert not any("{" in text for _, text in said)
    assert {*OF_TRAININGS} < kinds
    assert {*CAUSES} > kinds


@pytest.mark.parametrize(
    "cause",
    [
        Scaled(NEAR),
        Scaled(1 / NEAR),
        RanksScaled(((1, NEAR),)),
        LacksSum(frozenset({"dp"}), NEAR),
        ReducedOver(frozenset({"dp"}), frozenset({"tp"}), NEAR),
        TermsWeighted((("main", NEAR),)),
        MicroBatchesWeighted((NEAR, NEAR)),
        Weighted((NEAR, NEAR), are_equal=False),
        OtherCoefficient({0: NEAR / 2}, 0.5),
    ],
)
def test_a_wrong_number_has_another_text_than_the_right_one(cause: StepMistake) -> None:
    text = words_of(cause, GRADIENT).meaning
    numbers = re.findall(r"[0-9]+(?:[.][0-9]+)?", text.replace("rank 0", "rank"))
    assert max(len(each) for each in numbers) > 9, text
    assert "1" not in numbers or "rank 1" in text


def wrong_play() -> LayoutPlay:
    return play_of(
        "tp",
        compared(1.5, name="b.0.norm"),
        compared(1.25, name="b.1.norm"),
        compared(1.0, name="b.0.up"),
        compared(1.0, name="b.1.up"),
        # The state of the optimizer shows it later, and by more.
        replace(compared(3.0), quantity=STATE, name=StateName.of("b.0.norm", "m")),
        replace(compared(1.01), quantity=STATE, name=StateName.of("b.1.up", "m")),
        num_wrong=2,
    )


def test_equal_layers_are_one_row_of_the_table() -> None:
    right = play_of("dp", *(compared(1.0, name=n) for n in ("b.0.up", "out")))
    none, is_right = LayoutCell("none"), LayoutCell("right")
    follows = LayoutCell("follows", 0.010000000000000009, STATE)
    mistake = LayoutCell("mistake", 0.5, GRADIENT)
    assert [*rows_of([right, wrong_play()]).items()] == [
        ("b.0.up", (is_right, is_right)),
        ("out", (is_right, none)),
        ("b.{0-1}.norm", (none, mistake)),
        ("b.1.up", (none, follows)),
    ]


def test_the_page_has_words_and_shades() -> None:
    parity = Parity("", "", (wrong_play(),), (), 1, 0)
    page = rendered(account_of(parity), drawn(parity))
    assert 'class="mistake" style="--shade: 55%">off by 50 %' in page
    assert 'class="follows" style="--shade: 28%">off by 1.0 %' in page
    # No number has an exponent.
    assert "e-0" not in page.split('id="layouts"')[1].split("</section>")[0]
