"""Synchronizers with right gradients that leave something behind, or change the process."""

import gc
import os
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy.random
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from studies.redteam.wrong.autograd import RemovesAllHooks
from studies.redteam.wrong.leftovers import (
    ChangesTheDefault,
    LeavesAutogradOnOneThread,
    LeavesFlatParameters,
    LeavesMainGrad,
    LeavesNodeHooks,
    LeavesPlacesInBuckets,
    RewindsGenerators,
    SeedsEveryone,
    SeedsPython,
    WatchesCollections,
)
from studies.redteam.wrong.sizes import CapsInElements
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.main_grads import AveragedMainGrads
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from tests.quality.planted.planted import (
    UNBIND,
    Planted,
    plant,
    planted,
    right,
    training,
)

CAP = "bucket_fits_the_cap"
SIX_STEPS = Scenario(
    MeshSpec((2,), ("dp",)),
    (
        ParameterSpec("w", (2, 3), ("R",)),
        ParameterSpec("one", (3,), None),
        ParameterSpec("other", (3,), None),
    ),
    (1,) * 6,
    2**20,
    backward="hooks_of_others",
)
SHOWN = {"scenarios": (SIX_STEPS,), "is_alone": True}
BOTH_FIT, BOTH_DO_NOT_FIT, NONE_FITS = (
    training(2, shape=(2, 3), cap_bytes=num_bytes) for num_bytes in (48, 24, 1)
)


@right(SIX_STEPS)
class DrawsNumbers(ViewBuckets):
    """Right: numbers may be drawn, and a seed may be set for the length of a block."""

    def wait(self) -> None:
        super().wait()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
        states = random.getstate(), numpy.random.get_state()
        random.seed(7)
        numpy.random.seed(7)
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        # As many as move a generator on.
        torch.rand(10)
        numpy.random.random(3000)
        for _ in range(1000):
            random.random()


def replace_backward() -> None:
    """Count backwards of tensors, if they are not counted already."""
    own = torch.Tensor.backward
    if hasattr(own, "count"):
        return

    def backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        backward.count += 1
        own(tensor, *args, **kwargs)

    backward.count = 0
    torch.Tensor.backward = backward


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
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().wait()
        hook.remove()
        torch.set_default_dtype(dtype)
        gc.disable()
        gc.callbacks.append(lambda *_: None)
        gc.callbacks.pop()
        torch.set_flush_denormal(True)
        os.environ["A_VARIABLE"] = "1"
        del os.environ["A_VARIABLE"]
        torch.set_flush_denormal(False)
        gc.enable()


def changing(
    name: str, change: Callable[[], object], cause: str = "setting_changed"
) -> Planted:
    """Plant a synchronizer whose `bind()` changes the process."""

    def bind(self: ViewBuckets) -> None:
        ViewBuckets.bind(self)
        change()

    subject = type(name, (ViewBuckets,), {"bind": bind})
    return plant(subject, (UNBIND, cause), **SHOWN)


@planted(
    (CAP, "over_cap"),
    scenarios=(BOTH_DO_NOT_FIT,),
    elsewhere=(BOTH_FIT,),
    is_alone=True,
)
class CountsCapInElements(CapsInElements):
    """It promises to keep the cap."""

    capabilities = Capabilities(varying_accumulations=True, keeps_bucket_cap=True)


@right(BOTH_DO_NOT_FIT, NONE_FITS)
class KeepsCap(ViewBuckets):
    """Right: a bucket is closed before it is too large."""

    capabilities = Capabilities(varying_accumulations=True, keeps_bucket_cap=True)


class JoinsBuckets(CountsCapInElements):
    """It promises nothing about the cap."""

    capabilities = Capabilities()


class OneABucket(AveragedMainGrads):
    """Right: gradients of equal values are not counted together against the cap."""

    capabilities = replace(AveragedMainGrads.capabilities, keeps_bucket_cap=True)


OTHERS = [
    changing("SeedsNumpy", lambda: numpy.random.seed(7), "generator_seeded"),
    changing("ChangesPrecision", lambda: torch.set_float32_matmul_precision("medium")),
    changing("ReplacesBackward", replace_backward, "hook_left"),
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
    plant(LeavesNodeHooks, (UNBIND, "hook_left"), **SHOWN),
    plant(RemovesAllHooks, (UNBIND, "hook_lost"), **SHOWN),
    plant(LeavesMainGrad, (UNBIND, "attribute_left"), **SHOWN),
    plant(LeavesPlacesInBuckets, (UNBIND, "attribute_left"), **SHOWN),
    plant(LeavesFlatParameters, (UNBIND, "parameters_joined"), **SHOWN),
    plant(SeedsEveryone, (UNBIND, "generator_seeded"), **SHOWN),
    plant(SeedsPython, (UNBIND, "generator_seeded"), **SHOWN),
    plant(RewindsGenerators, (UNBIND, "generator_rewound"), **SHOWN),
    plant(ChangesTheDefault, (UNBIND, "setting_changed"), **SHOWN),
    plant(LeavesAutogradOnOneThread, (UNBIND, "setting_changed"), **SHOWN),
    plant(WatchesCollections, (UNBIND, "setting_changed"), **SHOWN),
    plant(ViewBuckets, None, scenarios=(SIX_STEPS,)),
    plant(JoinsBuckets, None, scenarios=(BOTH_DO_NOT_FIT,)),
    plant(
        OneABucket,
        None,
        scenarios=(
            training(
                12,
                shape=(),
                ranks=3,
                accumulations=(2,),
                cap_bytes=1,
                parameter={"dtype": "bfloat16"},
            ),
        ),
    ),
]
