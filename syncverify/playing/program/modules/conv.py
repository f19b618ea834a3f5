"""A convolutional net, with images in either memory format."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from syncverify.playing.program.modules.model import Model

_BATCH, _CHANNELS, _SIZE, _CLASSES = 2, 2, 4, 3


class ConvNet(nn.Module):
    """Two convolutions, a normalization and a classifier, trained on random images.

    Args:
        memory_format: Memory format of the images. Gradients of weights take it over, so
            with channels-last images they are strided differently from the weights.
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
        shape = (_BATCH, _CHANNELS, _SIZE, _SIZE)
        images = torch.randn(shape, generator=generator, dtype=torch.float32)
        labels = torch.randint(_CLASSES, (_BATCH,), generator=generator)
        images = images.to(self.first.weight, memory_format=self._memory_format)
        features = self.second(functional.relu(self.norm(self.first(images))))
        logits = self.classifier(features.mean(dim=(2, 3)))
        return functional.cross_entropy(logits.float(), labels.to(logits.device))


CONV = Model(lambda *_: ConvNet(torch.contiguous_format))
CONV_CHANNELS_LAST = Model(lambda *_: ConvNet(torch.channels_last))
