"""The user's hooks, and gradients that somebody keeps."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.wrong.sizes import local_of
from syncverify.bugbank.bases.plain_grads import CountsHookCalls
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets


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
