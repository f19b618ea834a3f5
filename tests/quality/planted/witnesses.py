"""A defect that violates each property, and a right program that comes close."""

from typing import Any

from syncverify.subjects.bugbank.catalogue import entries, entry_of
from tests.quality.planted.forms import AssignsLocalPart, Reforms
from tests.quality.planted.growth import (
    KeepsFewHandles,
    KeepsHandles,
    ReducesPadding,
    ReducesUnfilledStaging,
)
from tests.quality.planted.modules import DropsLastBits, ModuleGrads
from tests.quality.planted.remains import CountsCapInElements, KeepsCap
from tests.quality.planted.timing import ReducesInRandomOrder, ReducesInSeededOrder

# Replicas that differ come after a wrong gradient: at least one of them is wrong.
_DIFFERS = entry_of("dp-group-ignores-sequence-parallel")
# The bug bank has no entry that violates one of these before all other properties.
BESIDE_THE_BANK: dict[str, tuple[type[Any], type[Any]]] = {
    "gradient_is_within_rounding": (DropsLastBits, ModuleGrads),
    "gradient_has_form_of_parameter": (AssignsLocalPart, Reforms),
    "replicas_agree": (_DIFFERS.subject, _DIFFERS.twin),
    "bucket_fits_the_cap": (CountsCapInElements, KeepsCap),
    "memory_does_not_pile_up": (KeepsHandles, KeepsFewHandles),
    "memory_is_written_before_it_is_read": (ReducesUnfilledStaging, ReducesPadding),
    "subject_is_deterministic": (ReducesInRandomOrder, ReducesInSeededOrder),
}


def witnesses() -> dict[str, tuple[type[Any], type[Any]]]:
    """Return a defect and a right program for each property: the first of the bank, if any."""
    of_bank = {each.violates: (each.subject, each.twin) for each in reversed(entries())}
    return of_bank | BESIDE_THE_BANK
