"""The catalogue of properties is complete, and agrees with the code."""

import pytest

from studies.pages.property_catalogue import parts, witnesses
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.registry import Property

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


@every_property
def test_a_defect_shows_it_and_a_right_program_does_not(entry: Property) -> None:
    found = witnesses(entry)
    assert found is not None
    assert found[0] is not found[1]


def test_a_docstring_without_limits_is_seen() -> None:
    def silent(_judgement: object) -> None:
        """Nothing is wrong.

        Catches: everything.
        """

    entry = Property(silent, lambda _: True)  # type: ignore[arg-type]
    assert parts(entry) == ("", "everything.", "")
