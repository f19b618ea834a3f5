"""The catalogue of properties is complete, and agrees with the code."""

import pytest

from studies.pages.property_catalogue import parts
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.property import Property

every_property = pytest.mark.parametrize(
    "entry", ALL_PROPERTIES, ids=[entry.name for entry in ALL_PROPERTIES]
)


@every_property
def test_the_docstring_says_what_is_caught_and_what_is_left_open(
    entry: Property,
) -> None:
    _, caught, limits = parts(entry)
    assert caught.endswith(".")
    assert limits.endswith(".")


def test_a_docstring_without_limits_is_seen() -> None:
    def silent(_judgement: object) -> None:
        """Nothing is wrong.

        Catches: everything.
        """

    entry = Property(silent, order=0, applies=lambda _: True, example="")  # type: ignore[arg-type]
    assert parts(entry) == ("", "everything.", "")
