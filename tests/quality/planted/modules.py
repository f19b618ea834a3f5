"""Planted defects that need modules: sums of products have gradients of whole numbers."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.subject import resolve
from tests.quality.planted.planted import Planted, plant

ROUNDING = "gradient_is_within_rounding"
# Convolutions have weights of 4 dims.
REAL_MODULES = frozenset({"module", "shape=4 dims"})


class ModuleGrads(MainGrads):
    """Right, for real modules too."""

    features = REAL_MODULES


class DropsLastBits(ModuleGrads):
    """Compresses gradients to 18 of their 24 bits, which hold all whole numbers that are sent."""

    def reduce(self, bucket: Bucket) -> None:
        if bucket.buffer.dtype is torch.float32:
            bucket.buffer.view(torch.int32).bitwise_and_(~0x3F)
        super().reduce(bucket)


class KeepsGradientsOfIdleExperts(ModuleGrads):
    """Takes a gradient of zeros for none, so that the one before stays in its slot."""

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if local(parameter.grad).any():
            super().on_accumulated(slot, parameter)
        else:
            parameter.grad = None
            self.moved[parameter] += 1


class CopiesStorage(ModuleGrads):
    """Copies gradients on their way to `.grad` in the order of memory.

    Autograd lays out `.grad` like its parameter; a convolution of channels-last images
    hands over a gradient that is channels-last.
    """

    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            for parameter, slot in bucket.slots.items():
                hook = partial(self.on_gradient, parameter, slot)
                self.handles.append(parameter.register_hook(hook))

    def on_gradient(
        self, parameter: nn.Parameter, slot: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        part = local(gradient)
        in_memory = part.as_strided((part.numel(),), (1,)).view(slot.shape)
        slot.copy_(in_memory + slot if self.moved[parameter] else in_memory)
        self.moved[parameter] += 1

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        parameter.grad = None


def without_module(scenario: Scenario) -> Scenario:
    """Leave the parameters as they are, and train a sum of products with them."""
    return replace(scenario, module=PLAIN)


def shown_by(
    name: str, subject: type[ModuleGrads], cause: str = "out_of_bound"
) -> Planted:
    own, feature = resolve(subject).capabilities, f"module={name}"
    # Scenarios train this module or none.
    features = own.features - {"module"} | {feature}
    return plant(
        subject,
        (ROUNDING, cause),
        feature,
        twin=ModuleGrads,
        contract=replace(own, features=features),
        seeds=(*range(12),),  # one search may have bad luck
        without=without_module,
        needs=frozenset({"shape=4 dims"} if name.startswith("conv") else ()),
        examples=200,  # few of them train the module
    )


MODULE_DEFECTS = [
    shown_by("mlp", DropsLastBits),
    shown_by("conv", DropsLastBits),
    shown_by("conv_channels_last", CopiesStorage),
    shown_by("moe", KeepsGradientsOfIdleExperts, "stale"),
    shown_by("gpt", DropsLastBits),
]
