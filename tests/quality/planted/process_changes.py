"""Synchronizers with right gradients that change the process, and some that may."""

import gc
import os
import random
import warnings
from collections.abc import Callable

import numpy.random
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from tests.quality.planted.planted import UNBIND, Planted, plant, planted, right
from tests.quality.planted.remains import SHOWN, SIX_STEPS


@planted((UNBIND, "generator_seeded"), **SHOWN)
class SeedsNumpy(ViewBuckets):
    """`bind()` seeds numpy's generator, which belongs to the training program."""

    def bind(self) -> None:
        super().bind()
        numpy.random.seed(7)


@right(SIX_STEPS)
class DrawsApart(ViewBuckets):
    """Right: seeds are set back, and then a number of draws moves numpy's generator on."""

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


def changing(name: str, change: Callable[[], object]) -> Planted:
    """Plant a synchronizer whose `bind()` changes the process."""

    def bind(self: ViewBuckets) -> None:
        ViewBuckets.bind(self)
        change()

    subject = type(name, (ViewBuckets,), {"bind": bind})
    return plant(subject, (UNBIND, "setting_changed"), **SHOWN)


OTHERS = [
    changing("StopsCollector", gc.disable),
    changing("FlushesDenormals", lambda: torch.set_flush_denormal(True)),
    # The harness sets it.
    changing(
        "ChangesCudnn", lambda: setattr(torch.backends.cudnn, "deterministic", False)
    ),
    changing(
        "ChangesEnvironment",
        lambda: os.environ.update({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    ),
    changing("SilencesWarnings", lambda: warnings.simplefilter("ignore")),
    changing(
        "HooksAllModules", lambda: register_module_forward_pre_hook(lambda *_: None)
    ),
    changing(
        "HooksAllOptimizers",
        lambda: register_optimizer_step_post_hook(lambda *_: None),
    ),
]


@right(SIX_STEPS)
class ChangesForABlock(ViewBuckets):
    """Right: `wait()` puts all settings back; `bind()` sets a variable that torch's tools set."""

    def bind(self) -> None:
        super().bind()
        os.environ["MASTER_ADDR"] = "localhost"  # as torch's own tools do
        for parameter in filter(lambda p: p.requires_grad, *self.param_groups):
            parameter.peers = (0, [parameter])

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
