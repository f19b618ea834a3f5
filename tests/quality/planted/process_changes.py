"""Synchronizers with right gradients that change the process, and some that may."""

import gc
import os
import random
import warnings

import numpy.random
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from typing_extensions import override

from studies.redteam.wrong.leftovers import (
    LeavesAutogradOnOneThread,
    RewindsGenerators,
    WatchesCollections,
)
from syncverify.bugbank.bases.view_buckets import ViewBuckets


class SeedsNumpy(ViewBuckets):
    """`bind()` seeds numpy's generator, which belongs to the training program."""

    @override
    def bind(self) -> None:
        super().bind()
        numpy.random.seed(7)


class DrawsApart(ViewBuckets):
    """Right: seeds are set back, and then a number of draws moves numpy's generator on."""

    @override
    def wait(self) -> None:
        super().wait()
        states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
        torch.rand(3)
        random.seed(7)
        numpy.random.seed(7)
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        numpy.random.set_state(states[2])
        numpy.random.random(3000)


class OnBind(ViewBuckets):
    """`bind()` changes the process."""

    @override
    def bind(self) -> None:
        super().bind()
        self.change()

    def change(self) -> None:
        raise NotImplementedError


class StopsCollector(OnBind):
    """Python's collector is turned off, and not on again."""

    @override
    def change(self) -> None:
        gc.disable()


class FlushesDenormals(OnBind):
    """Denormal numbers are zero from now on."""

    @override
    def change(self) -> None:
        torch.set_flush_denormal(True)


class ChangesCudnn(OnBind):
    """cuDNN may choose other kernels in each run."""

    @override
    def change(self) -> None:
        torch.backends.cudnn.deterministic = False  # the harness sets it


class ChangesEnvironment(OnBind):
    """Processes that the training program starts get another environment."""

    @override
    def change(self) -> None:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"


class SilencesWarnings(OnBind):
    """No warning is shown from now on."""

    @override
    def change(self) -> None:
        warnings.simplefilter("ignore")


class HooksAllModules(OnBind):
    """A hook on all modules is never removed."""

    @override
    def change(self) -> None:
        register_module_forward_pre_hook(lambda *_: None)


class HooksAllOptimizers(OnBind):
    """A hook on all optimizers is never removed."""

    @override
    def change(self) -> None:
        register_optimizer_step_post_hook(lambda *_: None)


class ChangesForABlock(ViewBuckets):
    """Right: `wait()` puts all settings back; `bind()` sets a variable that torch's tools set."""

    @override
    def bind(self) -> None:
        super().bind()
        os.environ["MASTER_ADDR"] = "localhost"  # as torch's own tools do
        for parameter in filter(lambda p: p.requires_grad, *self.param_groups):
            parameter.peers = (0, [parameter])

    @override
    def wait(self) -> None:
        hook = register_module_forward_pre_hook(lambda *_: None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().wait()
        hook.remove()
        gc.disable()
        gc.callbacks.append(lambda *_: None)
        gc.callbacks.pop()
        torch.set_flush_denormal(True)
        os.environ["A_VARIABLE"] = "1"
        del os.environ["A_VARIABLE"]
        torch.set_flush_denormal(False)
        gc.enable()


SEEDING = [SeedsNumpy]
REWINDING = [RewindsGenerators]
CHANGING = [
    StopsCollector,
    FlushesDenormals,
    ChangesCudnn,
    LeavesAutogradOnOneThread,
    ChangesEnvironment,
    SilencesWarnings,
    HooksAllModules,
    HooksAllOptimizers,
    WatchesCollections,
]
RIGHT = [DrawsApart, ChangesForABlock]
