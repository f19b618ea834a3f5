"""`TORCH_DISTRIBUTED_DEBUG=DETAIL`: do all ranks issue the same collectives?"""

from comparison.methods.method import Method
from comparison.verdicts import SILENT, Verdict
from syncverify.judge.properties.judgement import Judgement


def nothing_more(_: Judgement) -> Verdict:
    """Return the silent verdict: the debug mode raises its findings."""
    return SILENT


DETAIL_DEBUG = Method(
    "detail_debug",
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`",
    "gloo in detail",
    nothing_more,
    "The same training on gloo, in processes that were started with "
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`: each process group is wrapped, and before each "
    "collective ranks compare its kind, shapes and dtypes. A run that raises, dies or hangs "
    "counts as caught; values are not compared. By construction the mode cannot see wrong "
    "values, lifetimes and races.",
)
