"""A frozen parameter has a place in a bucket, which never becomes complete.

Reported in pytorch/pytorch#14675.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#14675",
    trigger="2 ranks, a frozen parameter beside another one",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class CountsFrozenParameters(ViewBuckets):
    """A frozen parameter has a place in a bucket, which never becomes complete."""

    @override
    def is_managed(self, parameter: nn.Parameter) -> bool:
        return True
