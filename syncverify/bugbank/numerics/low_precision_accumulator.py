"""Reported in deepspeedai/DeepSpeed#1800."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import Entry


class AccumulatesInParameterDtype(MainGrads):
    """Buckets have the parameter's dtype although its gradient has another."""

    @override
    def dtype_of(self, parameter: nn.Parameter) -> torch.dtype:
        return parameter.dtype


ENTRY = Entry(
    subject=AccumulatesInParameterDtype,
    twin=MainGrads,
    source="deepspeedai/DeepSpeed#1800",
    trigger="a bfloat16 parameter with float32 gradients",
    silent=True,
    property="unreduced_stay_local",
    cause="rounded",
)
