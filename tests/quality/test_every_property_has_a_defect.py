"""No property is decoration: each has a planted defect that violates it."""

import pytest

from syncverify.judge.properties import ALL_PROPERTIES
from tests.quality.planted import forms, remains
from tests.quality.planted.bank import DEFECTS
from tests.quality.planted.modules import MODULE_DEFECTS
from tests.quality.planted.stream_bank import STREAM_DEFECTS

NAMES = [entry.name for entry in ALL_PROPERTIES]
# Needs two runs and a bit of luck: see test_timing_defects.py.
OF_CHANCE = "subject_is_deterministic"


@pytest.mark.parametrize("name", NAMES)
def test_property_is_violated_by_a_defect(name: str) -> None:
    violated = {
        name for d in (*DEFECTS, *STREAM_DEFECTS) for name in (d.property, *d.also)
    }
    violated |= {defect.property for defect in MODULE_DEFECTS}
    violated |= {forms.PROPERTY, remains.GROWTH, remains.CAP}
    assert name in {OF_CHANCE, *violated}


def test_each_property_is_what_some_defect_violates_first() -> None:
    """Without it, that defect would pass.

    Where replicas disagree, one of them at least differs from the reference:
    `replicas_agree` never comes first. It holds where the reference itself is in doubt.
    """
    first = {defect.property for defect in DEFECTS}
    first |= {defect.property for defect in STREAM_DEFECTS if not defect.also}
    first |= {defect.property for defect in MODULE_DEFECTS}
    first |= {forms.PROPERTY, remains.GROWTH, remains.CAP}
    assert {*NAMES} - first == {"replicas_agree", OF_CHANCE}
