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
    judges_ends=True,
)
