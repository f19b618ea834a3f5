"""A parameter that is listed twice has two places, and two hooks.

Reported in pytorch/pytorch#51929.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


class ListsOnce(ViewBuckets):
    """Right: looks at each parameter once."""

    features = frozenset({"listed=twice"})

    @override
    def is_managed(self, parameter: nn.Parameter) -> bool:
        is_new = parameter not in self.seen
        self.seen.add(parameter)
        return is_new and super().is_managed(parameter)

    @override
    def bind(self) -> None:
        self.seen: set[nn.Parameter] = set()
        super().bind()


@reported(
    "pytorch/pytorch#51929",
    trigger="2 ranks, a parameter that is listed twice",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # Two listings of a parameter count one micro-batch as two.
    or_cause="reduced_early",
)
class CountsEachListing(ListsOnce):
    """A parameter that is listed twice has two places, and two hooks."""

    @override
    def is_managed(self, parameter: nn.Parameter) -> bool:
        return parameter.requires_grad
