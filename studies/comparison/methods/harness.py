"""The method "syncverify": all properties of the harness judge one run on `sim`."""

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties import check
from syncverify.judge.properties.judgement import Judgement


def all_properties_hold(judgement: Judgement) -> Verdict:
    """Judge a run by all properties, as `syncverify run` does.

    Args:
        judgement: A run on `sim`, its reference, and a second run of the same scenario where
            the defect is about chance.

    Returns:
        An alarm with the first violation, as `property (cause)`; SILENT if there is none.
    """
    violations = check(
        judgement.scenario,
        judgement.run,
        judgement.reference.capabilities,
        again=judgement.again,
    )
    if not violations:
        return SILENT
    return alarm(f"{violations[0].property} ({violations[0].cause})")


HARNESS = Method(
    id="syncverify",
    title="syncverify",
    rig="sim",
    judge=all_properties_hold,
    judges_ends=True,
)
