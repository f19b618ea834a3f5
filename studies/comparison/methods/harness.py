"""syncverify itself."""

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties import check
from syncverify.judge.properties.judgement import Judgement


def all_properties_hold(judgement: Judgement) -> Verdict:
    """Check all properties.

    Args:
        judgement: A run on `sim`.

    Returns:
        An alarm at the first property that does not hold.
    """
    found = check(
        judgement.scenario,
        judgement.run,
        judgement.reference.capabilities,
        again=judgement.again,
    )
    return alarm(f"{found[0].property} ({found[0].cause})") if found else SILENT


HARNESS = Method(
    id="syncverify",
    title="syncverify",
    rig="sim",
    judge=all_properties_hold,
    about="All properties, on `sim`, in the smallest scenario, and not in its form of many "
    "steps. The search of `syncverify` found this scenario, from nothing; the other methods "
    "are given it. The bank and the properties have the same authors, so this row says that "
    "these defects are within reach, not that all defects are. A mistake that no property "
    "states or no scenario contains stays unseen.",
    judges_ends=True,
)
