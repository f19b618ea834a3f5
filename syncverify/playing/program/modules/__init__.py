"""Real `torch.nn` modules that scenarios train, instead of a sum of products."""

from syncverify.playing.program.modules.layers import module_parameters, provide_layers
from syncverify.playing.program.modules.model import MODELS, Model

__all__ = ["MODELS", "Model", "module_parameters", "provide_layers"]
