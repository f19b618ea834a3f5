"""The search for the smallest form of a finding: of a scenario, a schedule, a training.

Each of them offers its smaller forms. The search for the smallest one is the same.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from syncverify.search.budget import OutOfBudgetError

Found = TypeVar("Found")
Form = TypeVar("Form")


def smallest(
    found: Found,
    smaller: Callable[[Found], Iterable[Form]],
    shown_in: Callable[[Form, Found], Found | None],
) -> Found:
    """Return a finding in the smallest form that shows it, as far as a budget allows.

    Args:
        found: The finding as it was met.
        smaller: Yields smaller forms of a finding, the most promising ones first.
        shown_in: Plays a form, and returns the finding as that shows it, or None. An
            `OutOfBudgetError` ends the search.
    """
    forms = iter(smaller(found))
    with contextlib.suppress(OutOfBudgetError):
        while (form := next(forms, None)) is not None:
            less = shown_in(form, found)
            if less is not None:
                found, forms = less, iter(smaller(less))
    return found
