"""`TORCH_DISTRIBUTED_DEBUG=DETAIL`, which compares the collectives of all ranks."""

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict
from syncverify.judge.properties.judgement import Judgement


def nothing_more(_: Judgement) -> Verdict:
    """Return the silent verdict: the debug mode raises its findings."""
    return SILENT


DETAIL_DEBUG = Method(
    "detail_debug",
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`",
    "gloo in detail",
    nothing_more,
)
