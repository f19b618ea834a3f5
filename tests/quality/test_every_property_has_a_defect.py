"""No property is decoration: each has a planted defect and a right program beside it.

Other tests play them: those of the bug bank, and of `forms`, `modules`, `remains`, `timing` and
`unwritten`.
"""

from syncverify.bugbank.catalogue import entries
from syncverify.judge.properties import ALL_PROPERTIES
from tests.quality.planted.witnesses import BESIDE_THE_BANK, witnesses


def test_each_property_has_a_defect_and_another_program_as_its_twin() -> None:
    shown = witnesses()
    assert {entry.name for entry in ALL_PROPERTIES} == {*shown}
    assert all(defect is not twin for defect, twin in shown.values())


def test_a_property_that_the_bank_shows_needs_no_other_defect() -> None:
    assert {entry.violates for entry in entries()}.isdisjoint(BESIDE_THE_BANK)
