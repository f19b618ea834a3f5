"""Gradients that are undefined, shared, sparse or complex, and hooks of the user."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.bases import local_of, reduce_groups_of
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets


@wrong(
    trigger="`W @ x + b`: two parameters get one gradient tensor; 2 ranks",
    needs=("use=added_to_another",),
)
class ReducesInTensorHooks(PlainGrads):
    """A tensor hook reduces the gradient in place, which another consumer may share."""

    capabilities = PlainGrads.capabilities

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            self.handles.append(parameter.register_hook(self.hook_of(parameter)))

    def hook_of(self, parameter: nn.Parameter) -> Any:
        """Return a hook that reduces the only gradient of a step in place."""

        def hook(gradient: torch.Tensor) -> None:
            self.counts[parameter] += 1
            if self.required == 1:
                self.reduce(gradient)

        return hook

    @override
    def wait(self) -> None:
        if self.required > 1:
            super().wait()


@wrong(
    trigger="2 ranks, a parameter whose only gradient is undefined",
    needs=("used=undefined",),
)
class ExpectsEveryGradient(CountsHookCalls):
    """A parameter is marked as ready by a hook, and `.grad` is not looked at."""

    @override
    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required:
            if parameter.grad is None:
                parameter.grad = torch.ones_like(parameter)
            self.reduce(parameter.grad)


@wrong(trigger="2 ranks, sparse gradients of other rows")
class ReducesSparseValues(PlainGrads):
    """The values of sparse gradients are summed, whatever their rows are."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if local_of(gradient).is_sparse:
            values = local_of(gradient).coalesce().values()
            for group in reduce_groups_of(gradient):
                dist.all_reduce(values, group=group)
        else:
            super().reduce(gradient)


@wrong(trigger="2 ranks, a complex parameter")
class ReducesRealParts(PlainGrads):
    """The real part of a complex gradient is reduced, and the rest is left local."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        if part.is_complex() and isinstance(gradient, DTensor):
            real = part.real.contiguous()
            for group in reduce_groups_of(gradient):
                dist.all_reduce(real, group=group)
            part.real.copy_(real)
        else:
            super().reduce(gradient)


@wrong(
    trigger="a hook of the user that was registered before `bind()`",
    needs=("backward=hooks_of_others",),
)
class RemovesAllHooks(CountsHookCalls):
    """`unbind()` clears the dictionary of hooks, and the user's with it."""

    @override
    def unbind(self) -> None:
        for parameter in self.parameters:
            hooks = parameter._post_accumulate_grad_hooks  # noqa: SLF001  # the defect
            if hooks:
                hooks.clear()
        super().unbind()


@wrong(
    trigger="the user's hook returns another gradient",
    needs=("backward=hooks_of_others",),
)
class ReadsBeforeOthers(CountsHookCalls):
    """The gradient is taken from a tensor hook, before the user's hooks change it."""

    @override
    def bind(self) -> None:
        super().bind()
        self.taken: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_hook(self.taker(parameter))
            self.handles.append(hook)

    def taker(self, parameter: nn.Parameter):  # type: ignore[no-untyped-def]
        """Return a hook that adds a gradient up."""

        def take(gradient: torch.Tensor) -> None:
            own = gradient.detach().to(parameter.grad_dtype or gradient.dtype)
            known = self.taken.get(parameter)
            self.taken[parameter] = own.clone() if known is None else known + own

        return take

    @override
    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required and parameter.grad is not None:
            local_of(parameter.grad).copy_(local_of(self.taken.pop(parameter)))
            self.reduce(parameter.grad)

    @override
    def zero_grad(self) -> None:
        self.taken = {}
        super().zero_grad()


@wrong(
    trigger="`create_graph`, and the gradient's graph is used",
    needs=("backward=create_graph",),
)
class DetachesInPlace(CountsHookCalls):
    """The graph of a gradient is cut in place, though the user wants it."""

    @override
    def note(self, parameter: nn.Parameter) -> None:
        if parameter.grad is not None and parameter.grad.requires_grad:
            parameter.grad = parameter.grad.detach()
        super().note(parameter)


@wrong(
    trigger="a hook of the user that writes `.grad`, registered after `bind()`",
    needs=("backward=hook_writes_grad",),
)
class CopiesOutInItsHook(ViewBuckets):
    """The bucket is copied when its last hook is called, before the user's later hook."""

    @override
    def launch(self, bucket: Bucket) -> None:
        sent = bucket.buffer.clone()
        self.sent = getattr(self, "sent", {})
        self.sent[id(bucket)] = sent

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            sent = getattr(self, "sent", {}).pop(id(bucket), None)
            if sent is not None:
                bucket.buffer.copy_(sent)
                super().launch(bucket)
        super().wait()
