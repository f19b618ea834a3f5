"""`TORCH_DISTRIBUTED_DEBUG=DETAIL`: do all ranks issue the same collectives?"""

from __future__ import annotations

from comparison.methods.method import Method
from comparison.verdicts import SILENT, Verdict
from syncverify.properties.judgement import Judgement


def nothing_more(_: Judgement) -> Verdict:
    """Say nothing: what the debug mode finds, it raises."""
    return SILENT


DETAIL_DEBUG = Method(
    "detail_debug",
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`",
    "gloo in detail",
    nothing_more,
    "The same training on gloo, in processes that were started with "
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`: each process group is wrapped, and before each "
    "collective ranks compare its kind, shapes and dtypes. Caught is what raises, dies or "
    "hangs; values are not looked at. By construction it cannot see wrong values, lifetimes "
    "and races.",
)
