"""Buckets have the parameter's dtype although its gradient has another.

Reported in deepspeedai/DeepSpeed#1800.
"""

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import reported
from syncverify.scenario.contract import Capabilities


@reported(
    "deepspeedai/DeepSpeed#1800",
    trigger="a bfloat16 parameter with float32 gradients",
    violates="unreduced_stay_local",
    cause="rounded",
)
class AccumulatesInParameterDtype(MainGrads):
    """Buckets have the parameter's dtype although its gradient has another."""

    capabilities = Capabilities(right=frozenset({"dtype=own gradient dtype"}))

    @override
    def dtype_of(self, parameter: nn.Parameter) -> torch.dtype:
        return parameter.dtype
