"""Biases and norm weights, being small, are taken for local.

Reported in NVIDIA/Megatron-LM#1446.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.placements import Groups
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/Megatron-LM#1446",
    trigger="2 ranks, a parameter of one dim",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class SkipsVectors(ViewBuckets):
    """Biases and norm weights, being small, are taken for local."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return () if parameter.ndim == 1 else super().groups_of(parameter)
