"""Gradients are no longer views once their parameters were moved.

Reported in pytorch/pytorch#104336.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class TrustsViews(Careful):
    """Views are not checked: once `.grad` is None, the next gradient lies outside of the bucket."""

    features = frozenset({"event=set_to_none"})

    @override
    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass


@reported(
    "pytorch/pytorch#104336",
    trigger="parameters that move after bind(), 2 steps",
    violates="gradient_equals_reference",
    cause="view_lost",
    uses_streams=True,
    twin=Careful,
)
class TrustsViewsOfMoved(TrustsViews):
    """Gradients are no longer views once their parameters were moved."""

    features = frozenset({"event=move"})
