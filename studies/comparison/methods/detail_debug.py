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
    "A training of 10 optimizer steps runs on gloo, in processes that were started with "
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`: each process group is wrapped, and before each "
    "collective ranks compare its kind, shapes and dtypes. A defect counts as caught if its "
    "run raises, dies or hangs; values are not compared. By construction the mode cannot see "
    "wrong values, lifetimes or races.",
)
