"""Real `torch.nn` modules that scenarios train, instead of a sum of products."""

from __future__ import annotations

from syncverify.program.modules.layers import provide_layers
from syncverify.program.modules.model import Model
from syncverify.program.modules.named import MODELS, module_parameters

__all__ = ["MODELS", "Model", "module_parameters", "provide_layers"]
