"""The hashes of torch's DebugMode."""

from studies.comparison.hashes import DIFFERENT_OPERATORS
from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm, one_line
from syncverify.judge.properties.judgement import Judgement


def hashes_agree(judgement: Judgement) -> Verdict:
    """Return the finding of the comparison of two logs.

    Args:
        judgement: A run on gloo; its remarks are the differences from a trusted run.

    Returns:
        An alarm if both runs had the same operators and a hash differs.
    """
    remarks = judgement.run.remarks
    for remark in remarks:
        if not remark.startswith((DIFFERENT_OPERATORS, "the trusted run")):
            return alarm(remark)
    return Verdict(alarmed=False, words=one_line(remarks[0])) if remarks else SILENT


DEBUG_MODE = Method(
    "debug_mode",
    "DebugMode hashes",
    "gloo with hashes",
    hashes_agree,
)
