"""A convolutional net, with images in either memory format."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from syncverify.modules.model import Model
from syncverify.scenario import MeshSpec

_BATCH, _CHANNELS, _SIZE, _CLASSES = 2, 2, 4, 3


class ConvNet(nn.Module):
    """Two convolutions, a normalization and a classifier, trained on random images.

    Args:
        memory_format: In which images arrive. Gradients of weights follow it, and so are
            not contiguous where weights are.
    """

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        self._memory_format = memory_format
        self.first = nn.Conv2d(_CHANNELS, 4, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 2, kernel_size=3, stride=2)
        self.classifier = nn.Linear(2, _CLASSES)

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        images = torch.randn(_BATCH, _CHANNELS, _SIZE, _SIZE, generator=generator)
        labels = torch.randint(_CLASSES, (_BATCH,), generator=generator)
        images = images.to(self.first.weight.dtype, memory_format=self._memory_format)
        features = self.second(functional.relu(self.norm(self.first(images))))
        logits = self.classifier(features.mean(dim=(2, 3)))
        return functional.cross_entropy(logits.float(), labels)


def _build(
    mesh: MeshSpec, rank: int, *, memory_format: torch.memory_format
) -> nn.Module:
    return ConvNet(memory_format)


CONV = Model(functools.partial(_build, memory_format=torch.contiguous_format))
CONV_CHANNELS_LAST = Model(functools.partial(_build, memory_format=torch.channels_last))
