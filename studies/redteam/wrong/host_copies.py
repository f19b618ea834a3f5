"""Copies to the host that the host reads before they are made."""

from __future__ import annotations

import torch
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.wrong.sizes import local_of
from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import Bucket


@wrong(trigger="2 ranks, any gradient, on a GPU", device="cuda")
class DecidesOnAnEarlyCopy(ReducesInWait):
    """A flag is copied with `non_blocking`, and `.item()` of the copy decides at once."""

    @override
    def launch(self, bucket: Bucket) -> None:
        flag = bucket.buffer.abs().sum().to("cpu", non_blocking=True)
        if flag.item() >= 0:
            super().launch(bucket)


@wrong(trigger="any gradient, on a GPU", device="cuda")
class ReadsPinnedEarly(PlainGrads):
    """Gradients are copied to pinned memory, and the host reads them without a wait."""

    @override
    def wait(self) -> None:
        super().wait()
        self.norms = []
        for parameter in self.parameters:
            if parameter.grad is not None:
                part = local_of(parameter.grad)
                pinned = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
                pinned.copy_(part, non_blocking=True)
                self.norms.append(sum(pinned.flatten().tolist()))


@wrong(trigger="any gradient, on a GPU", device="cuda")
class ComparesAnEarlyCopy(PlainGrads):
    """`bool()` of a comparison on a copy that may not be there yet."""

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                copied = local_of(parameter.grad).to("cpu", non_blocking=True)
                if bool((copied != copied).any()):
                    raise RuntimeError("expected gradients without NaN")
