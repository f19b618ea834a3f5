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
        ("back\rwards\x07", r"back\rwards\x07"),
        ("\u202ereversed", r"\u202ereversed"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_written_and_moves_no_cursor(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert all(char.isprintable() or char in "\n\t" for char in shown)


class WrongTextError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # a mistake of the subject


def test_messages_and_names_of_exceptions_are_short_and_one_line() -> None:
    long = ValueError("x" * (MAX_MESSAGE_LENGTH + 5))
    assert message_of(long) == "x" * MAX_MESSAGE_LENGTH + "... (5 more characters)"
    assert message_of(WrongTextError()) == "(its message cannot be read: TypeError)"
    strange = type("\x1b\n" + "x" * 500, (Exception,), {})
    assert kind_of(strange()) == r"\x1b " + "x" * 95
    assert in_one_line("expected one\n  got two\n\n") == "expected one | got two"
