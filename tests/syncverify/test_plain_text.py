"""Texts of subjects and files are shown as text, and never obeyed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncverify.plain_text import (
    MAX_MESSAGE_LENGTH,
    in_one_line,
    kind_of,
    message_of,
    plain,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\n\tlines", "two\n\tlines"),
        ("Grad\u00fc\u00dfe", "Grad\u00fc\u00dfe"),
        ("\x1b[2Jcleared", r"\x1b[2Jcleared"),
        ("back\rwards\x07", r"back\rwards\x07"),
        ("\ud800", r"\ud800"),
        ("\u202ereversed", r"\u202ereversed"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_written_and_moves_no_cursor(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert all(char.isprintable() or char in "\n\t" for char in shown)


class WithoutTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class WrongTextError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # a mistake of the subject


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("bad \x1b[31m"), r"bad \x1b[31m"),
        (WithoutTextError(), "(its message cannot be read: RuntimeError)"),
        (WrongTextError(), "(its message cannot be read: TypeError)"),
        (
            ValueError("x" * (MAX_MESSAGE_LENGTH + 5)),
            "x" * MAX_MESSAGE_LENGTH + "... (5 more characters)",
        ),
    ],
)
def test_every_exception_has_a_message(error: Exception, message: str) -> None:
    assert message_of(error) == message


def test_class_of_an_exception_has_a_short_name() -> None:
    strange = type("\x1b\n" + "x" * 500, (Exception,), {})
    assert kind_of(strange()) == r"\x1b " + "x" * 95


def test_lines_of_a_message_become_one() -> None:
    assert in_one_line("expected one\n  got two\n\n") == "expected one | got two"
    assert in_one_line("\n") == ""
