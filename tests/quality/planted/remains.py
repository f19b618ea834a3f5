"""Synchronizers with right gradients that leave something behind, or hold more and more."""

import random
from dataclasses import replace
from typing import Any

import torch

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
from syncverify.bugbank.bases.main_grads import AveragedMainGrads
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.quality.planted.planted import UNBIND, plant, planted, right, training

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
        torch.rand(10)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            torch.rand(1)
        state = random.getstate()
        random.seed(7)
        random.setstate(state)
        for _ in range(1000):
            random.random()
        super().wait()


@planted((UNBIND, "setting_changed"), **SHOWN)
class ChangesPrecision(ViewBuckets):
    """The precision of matrix products is lowered, and not raised again."""

    def bind(self) -> None:
        super().bind()
        torch.set_float32_matmul_precision("medium")


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


@planted((UNBIND, "hook_left"), **SHOWN)
class ReplacesBackward(ViewBuckets):
    """A method of torch is replaced, and stays."""

    def bind(self) -> None:
        super().bind()
        replace_backward()


@right(SIX_STEPS)
class ChangesDtypeForABlock(ViewBuckets):
    """Right: the default dtype is set back."""

    def wait(self) -> None:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        super().wait()
        torch.set_default_dtype(before)


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
