"""No property is decoration: each has a planted defect that violates it."""

import pytest
from planted.bank import DEFECTS

from syncverify.properties import ALL_PROPERTIES

NAMES = [entry.name for entry in ALL_PROPERTIES]


@pytest.mark.parametrize("name", NAMES)
def test_property_is_violated_by_a_defect(name: str) -> None:
    assert any(name == d.property or name in d.also for d in DEFECTS)


def test_each_property_is_what_some_defect_violates_first() -> None:
    """Without it, that defect would pass.

    Where replicas disagree, one of them at least differs from the reference:
    `replicas_agree` never comes first. It holds where the reference itself is in doubt.
    """
    first = {defect.property for defect in DEFECTS}
    assert {*NAMES} - first == {"replicas_agree"}
