"""Real `torch.nn` modules that scenarios train, instead of a sum of products."""

from __future__ import annotations

from syncverify.playing.program.modules.layers import provide_layers
from syncverify.playing.program.modules.model import MODELS, Model
from syncverify.playing.program.modules.named import module_parameters

__all__ = ["MODELS", "Model", "module_parameters", "provide_layers"]
