"""syncverify itself."""

from __future__ import annotations

from comparison.methods.method import Method
from comparison.verdicts import SILENT, Verdict, alarm
from syncverify.properties import check
from syncverify.properties.judgement import Judgement


def all_properties_hold(judgement: Judgement) -> Verdict:
    """Check all properties.

    Args:
        judgement: A run on `sim`.

    Returns:
        An alarm at the first that does not hold.
    """
    found = check(
        judgement.scenario,
        judgement.run,
        judgement.reference.capabilities,
        again=judgement.again,
    )
    return alarm(f"{found[0].property} ({found[0].cause})") if found else SILENT


HARNESS = Method(
    "syncverify",
    "syncverify",
    "sim",
    all_properties_hold,
    "All properties, on `sim`, in the smallest scenario as it is, without the repeated "
    "steps. It is the search of `syncverify` that found this scenario, from nothing; the "
    "other methods are given it. The bank and the properties have the same authors, so this "
    "row says that these defects are within reach, not that all defects are. What it cannot "
    "see is what no property states and what no scenario contains.",
    judges_ends=True,
)
