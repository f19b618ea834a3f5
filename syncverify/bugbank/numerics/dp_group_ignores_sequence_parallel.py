"""Only the data-parallel axis is reduced, not the other replicated one.

Reported in ByteDance-Seed/VeOmni#1059.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.placements import Groups
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "ByteDance-Seed/VeOmni#1059",
    trigger="a mesh of (2, 2), a parameter replicated over both axes",
    violates="gradient_equals_reference",
    cause="rank_contribution_missing",
)
class ReducesOverFirstAxisOnly(ViewBuckets):
    """Only the data-parallel axis is reduced, not the other replicated one."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return super().groups_of(parameter)[:1]
