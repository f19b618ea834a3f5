"""zero_grad() sets gradients to None; the next ones are allocated elsewhere.

Reported in facebookresearch/fairscale#354.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "facebookresearch/fairscale#354",
    trigger="2 ranks, 2 steps",
    violates="gradient_equals_reference",
    cause="view_lost",
)
class DropsViews(ViewBuckets):
    """zero_grad() sets gradients to None; the next ones are allocated elsewhere."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.grad = None
