"""Numbers as text: no two different ones look alike."""

from __future__ import annotations

import pytest

from syncverify.whole_step.printed import printed


@pytest.mark.parametrize(
    ("number", "others", "text"),
    [
        (0.5, (), "0.5"),
        (1000.0, (6.25,), "1000"),
        (1.0, (1.0,), "1"),
        (1.0000001, (1.0,), "1.0000001"),
        (1 - 2**-53, (1.0,), "0.9999999999999999"),
        (1.0, (1 - 2**-53,), "1"),
    ],
)
def test_a_number_has_the_digits_that_tell_it_from_others(
    number: float, others: tuple[float, ...], text: str
) -> None:
    assert printed(number, *others) == text
