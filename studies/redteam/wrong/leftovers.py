"""Remains of a synchronizer after `unbind()`, and what piles up before it."""

import functools
import gc
import os
import random
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from typing_extensions import override

from studies.redteam.bases import local_of
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets


@wrong(trigger="any: the node lives as long as its parameter")
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


@wrong(trigger="any: the buffer lives as long as its parameters")
class LeavesMainGrad(ViewBuckets):
    """Each parameter keeps its part of the buffer as an attribute after `unbind()`."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.main_grad = parameter.grad


@wrong(trigger="many steps: memory grows")
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


@wrong(trigger="many steps: memory grows")
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


@wrong(trigger="a program that draws random numbers, such as dropout")
class SeedsEveryone(PlainGrads):
    """`bind()` seeds the global generator of torch, so that all ranks draw the same."""

    @override
    def bind(self) -> None:
        torch.manual_seed(0)


@wrong(trigger="a program that draws random numbers with Python")
class SeedsPython(PlainGrads):
    """`wait()` seeds Python's global generator to shuffle in one order on all ranks."""

    @override
    def wait(self) -> None:
        random.seed(len(self.parameters))
        random.shuffle(self.parameters)
        super().wait()


@wrong(trigger="any: the training program goes on with another default")
class ChangesTheDefault(PlainGrads):
    """`bind()` changes the default dtype, and nobody changes it back."""

    @override
    def bind(self) -> None:
        torch.set_default_dtype(torch.float64)


@wrong(trigger="any")
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


@wrong(trigger="any: the buffer lives as long as its parameters")
class LeavesPlacesInBuckets(ViewBuckets):
    """Each parameter keeps a tuple of a bucket's buffer and its place there."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            for place, parameter in enumerate(bucket.parameters):
                parameter.in_bucket = (bucket.buffer, place)


_ALL_NORMS: list[torch.Tensor] = []


@wrong(trigger="many steps: memory grows")
class KeepsNormsInAGlobal(PlainGrads):
    """A list of the module keeps a number for each step of each synchronizer."""

    @override
    def wait(self) -> None:
        super().wait()
        _ALL_NORMS.append(torch.zeros(1))


@wrong(trigger="many steps: memory grows in each second one")
class KeepsEveryOtherWork(ViewBuckets):
    """Handles of each second step are kept, until somebody asks for them."""

    @override
    def bind(self) -> None:
        super().bind()
        self.works: list[dist.Work | None] = []
        self.is_odd = False

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if self.is_odd:
            self.works.append(bucket.work)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.is_odd = not self.is_odd


@wrong(trigger="many steps: one tensor becomes longer")
class GrowsAHistory(PlainGrads):
    """The history of all norms is one tensor, to which each step adds."""

    @override
    def bind(self) -> None:
        self.norms = torch.zeros(0)

    @override
    def wait(self) -> None:
        super().wait()
        self.norms = torch.cat([self.norms, torch.zeros(1)])


@wrong(trigger="a program of two steps that draws random numbers")
class RewindsGenerators(PlainGrads):
    """`wait()` sets generators back to the states of `bind()`."""

    @override
    def bind(self) -> None:
        self.states = torch.get_rng_state(), random.getstate()

    @override
    def wait(self) -> None:
        super().wait()
        torch.set_rng_state(self.states[0])
        random.setstate(self.states[1])


@wrong(trigger="any: cycles are never freed, tiny numbers are zero")
class LeavesFastModes(PlainGrads):
    """`bind()` turns the collector off and flushes denormal numbers, for good."""

    @override
    def bind(self) -> None:
        gc.disable()
        torch.set_flush_denormal(True)


@wrong(trigger="any: processes started later, and warnings of others")
class LeavesSurroundings(PlainGrads):
    """`bind()` changes the environment and silences warnings, for good."""

    @override
    def bind(self) -> None:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        warnings.simplefilter("ignore")


@wrong(trigger="a backward on several devices")
class LeavesAutogradOnOneThread(PlainGrads):
    """`bind()` lets autograd use one thread, for good."""

    @override
    def bind(self) -> None:
        torch.autograd.set_multithreading_enabled(False)


@wrong(trigger="a program with another model or optimizer")
class LeavesGlobalHooks(PlainGrads):
    """Hooks on all modules and all optimizers are never removed."""

    @override
    def bind(self) -> None:
        register_module_forward_pre_hook(self.note)
        register_optimizer_step_pre_hook(self.note)

    def note(self, *_: object) -> None:
        """Count nothing yet."""


@functools.cache
def _scaled(gradient: torch.Tensor, step: int) -> torch.Tensor:
    return gradient / (1 + step)


@wrong(trigger="many steps: memory grows")
class RemembersEachStep(PlainGrads):
    """A function of the module with `functools.cache` gets each step's gradient."""

    @override
    def bind(self) -> None:
        self.step = 0

    @override
    def wait(self) -> None:
        super().wait()
        self.step += 1
        for parameter in self.parameters[:1]:
            if parameter.grad is not None:
                _scaled(local_of(parameter.grad), self.step)


@wrong(trigger="many steps: communicators pile up")
class MakesAGroupEachStep(PlainGrads):
    """`wait()` makes a process group of all ranks, and destroys none."""

    @override
    def wait(self) -> None:
        dist.new_group([*range(dist.get_world_size())])
        super().wait()


@wrong(trigger="any: the collector of cycles calls on")
class WatchesCollections(PlainGrads):
    """A callback of Python's collector is added in `bind()` and never removed."""

    @override
    def bind(self) -> None:
        gc.callbacks.append(self.note)

    def note(self, phase: str, info: dict[str, int]) -> None:
        """Count nothing."""
