"""Plain text: texts of a subject and of files, as a terminal and a report can show them."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

# Longest text of an exception, in characters; the rest is counted.
MAX_MESSAGE_LENGTH: Final = 10_000
_KEPT: Final = frozenset("\n\t")
# An address in memory, as `repr()` and `id()` write it on machines of 64 bits.
_ID: Final = re.compile(r"\b(?:0x[0-9a-f]{8,16}|\d{14,15})\b")


def plain(text: str) -> str:
    """Return a text with escapes in the place of control characters and lone surrogates.

    A terminal obeys control characters: a message could clear the screen or print a verdict.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in _KEPT
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def message_of(error: BaseException) -> str:
    """Return the message of an exception, whose class may have any `__str__`."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001  # code of the subject
        return f"(its message cannot be read: {type(second).__name__})"
    more = len(text) - MAX_MESSAGE_LENGTH
    return plain(text[:MAX_MESSAGE_LENGTH]) + (
        f"... ({more} more characters)" if more > 0 else ""
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 scenario` and `2 scenarios`."""
    return f"{number} {noun_of(number, noun)}"


def noun_of(number: float, noun: str) -> str:
    """Return a noun in the form that goes with a number."""
    return noun if number == 1 else f"{noun}s"


def named(noun: str, items: Iterable[object]) -> str:
    """Return items after their noun, such as `rank 0` and `ranks 0, 1`."""
    listed = [*map(str, items)]
    return f"{noun_of(len(listed), noun)} {', '.join(listed)}"


def first_of(names: Sequence[str], most: int) -> str:
    """Return names, or the first ones and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def in_one_line(text: str) -> str:
    """Return a text of several lines as one, for summaries."""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())


def without_ids(text: str) -> str:
    """Return a text without numbers of objects, which are others in each run."""
    return _ID.sub("(an id)", text)


def kind_of(error: BaseException) -> str:
    """Return the name of an exception's class, short enough for a token."""
    return " ".join(plain(type(error).__name__).split())[:100]
