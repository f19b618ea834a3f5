"""Remains of a synchronizer after `unbind()`, and what piles up before it."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from redteam.program import wrong
from redteam.wrong.sizes import local_of
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets


@wrong("leftovers", trigger="any: the node lives as long as its parameter")
class LeavesNodeHooks(PlainGrads):
    """Hooks on the node that accumulates a gradient are never removed."""

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            view = parameter.view_as(parameter)
            assert view.grad_fn is not None
            node = view.grad_fn.next_functions[0][0]
            parameter._node = node  # type: ignore[attr-defined]  # noqa: SLF001  # else it dies
            node.register_hook(lambda *_, p=parameter: self.note(p))  # type: ignore[union-attr]

    def note(self, parameter: nn.Parameter) -> None:
        """Count a call."""
        self.counts[parameter] += 1


@wrong("leftovers", trigger="any: the buffer lives as long as its parameters")
class LeavesMainGrad(ViewBuckets):
    """Each parameter keeps its part of the buffer as an attribute after `unbind()`."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.main_grad = parameter.grad  # type: ignore[attr-defined]


@wrong("leftovers", trigger="many steps: memory grows")
class KeepsAllWorks(ViewBuckets):
    """Handles of all steps are kept, and with them what the handles hold."""

    @override
    def bind(self) -> None:
        super().bind()
        self.works: list[Any] = []

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        self.works.append(bucket.work)


@wrong("leftovers", trigger="many steps: memory grows")
class KeepsAllCopies(PlainGrads):
    """A copy of each reduced gradient is kept for a log that nobody reads."""

    @override
    def bind(self) -> None:
        self.log: list[torch.Tensor] = []

    @override
    def wait(self) -> None:
        super().wait()
        self.log += [
            local_of(p.grad).clone() for p in self.parameters if p.grad is not None
        ]


@wrong("leftovers", trigger="a program that draws random numbers, such as dropout")
class SeedsEveryone(PlainGrads):
    """`bind()` seeds the global generator of torch, so that all ranks draw the same."""

    @override
    def bind(self) -> None:
        torch.manual_seed(0)


@wrong("leftovers", trigger="a program that draws random numbers with Python")
class SeedsPython(PlainGrads):
    """`wait()` seeds Python's global generator to shuffle in one order on all ranks."""

    @override
    def wait(self) -> None:
        random.seed(len(self.parameters))
        random.shuffle(self.parameters)
        super().wait()


@wrong("leftovers", trigger="any: the training program goes on with another default")
class ChangesTheDefault(PlainGrads):
    """`bind()` changes the default dtype, and nobody changes it back."""

    @override
    def bind(self) -> None:
        torch.set_default_dtype(torch.float64)


@wrong("leftovers", trigger="any")
class LeavesFlatParameters(ViewBuckets):
    """Parameters of one bucket stay views into one storage after `unbind()`."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            parts = [local_of(parameter) for parameter in bucket.parameters]
            if len({part.dtype for part in parts}) == 1:
                flat = torch.cat([part.reshape(-1) for part in parts])
                start = 0
                for parameter, part in zip(bucket.parameters, parts, strict=True):
                    if type(parameter) is nn.Parameter and part.is_contiguous():
                        stop = start + part.numel()
                        parameter.data = flat[start:stop].view(part.shape)
                    start += part.numel()
