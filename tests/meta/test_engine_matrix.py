"""The engine matrix in the documentation names every word, and nothing in it is wrong."""

import re
from pathlib import Path

import pytest

from studies.documents import with_part
from studies.pages.engine_matrix import (
    ERROR,
    NOT_SIMULATED,
    OVERFLOW,
    RIGHT,
    close,
    overflow_row,
    page,
    row,
    words,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "engine-matrix.md"
# A row with cells of two kinds: right, and not promised.
PLAYED_AGAIN = ("use", "checkpointed_and_not")


def table() -> dict[tuple[str, str], list[str]]:
    lines = re.findall(
        r"^\| (use|backward) \| `(\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE
    )
    return {(topic, word): rest.split(" | ")[-4:] for topic, word, rest in lines}


def test_every_word_has_a_row() -> None:
    assert [*table()] == [(topic, word) for topic, word, _ in words()]


def test_our_synchronizer_is_never_wrong() -> None:
    found = {key: cells[:2] for key, cells in table().items()}
    errors = {key: cells for key, cells in found.items() if cells != [RIGHT, RIGHT]}
    assert errors == {
        ("backward", "deep_reentrant"): [ERROR, ERROR],
        ("backward", "compiled_autograd"): ["not simulated", ERROR],
    }
    assert "SILENTLY WRONG" not in str(found)
    assert {*NOT_SIMULATED} == {"compiled_autograd"}


def test_ddp_keeps_what_it_promises() -> None:
    cells = {cell for found in table().values() for cell in found[2:]}
    assert {cell.partition(" (")[0] for cell in cells} == {
        RIGHT,
        "not promised",
        "not simulated",
    }


def test_the_page_is_what_the_code_writes_and_an_overflow_is_handed_on() -> None:
    cells = table()
    rows = [(topic, w, text, cells[topic, w]) for topic, w, text in words()]
    text = page([*rows, (*OVERFLOW, [RIGHT] * 4)])
    assert PAGE.read_text() == with_part(PAGE, "matrix", text)


@pytest.mark.nightly
def test_playing_a_row_again_gives_the_same_cells() -> None:
    try:
        assert row(*PLAYED_AGAIN) == table()[PLAYED_AGAIN]
        assert overflow_row() == [RIGHT] * 4
    finally:
        close()
