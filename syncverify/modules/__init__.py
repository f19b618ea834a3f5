"""Real `torch.nn` modules that scenarios train, instead of a sum of products."""

from __future__ import annotations

from syncverify.modules.model import Model
from syncverify.modules.named import find_model, module_parameters

__all__ = ["Model", "find_model", "module_parameters"]
