"""Numbers as text, with as many digits as tell them from others."""

from __future__ import annotations

from typing import Final

# 17 digits tell any two numbers of float64 apart.
FEWEST_DIGITS: Final = 6
MOST_DIGITS: Final = 17


def printed(number: float, *others: float) -> str:
    """Return a number as text that is no text of another number.

    Args:
        number: The number.
        others: The numbers that it has to be told from; equal ones count as the same number.
    """
    different = [each for each in others if each != number]
    for digits in range(FEWEST_DIGITS, MOST_DIGITS):
        text = f"{number:.{digits}g}"
        if all(text != f"{each:.{digits}g}" for each in different):
            return text
    return f"{number:.{MOST_DIGITS}g}"
