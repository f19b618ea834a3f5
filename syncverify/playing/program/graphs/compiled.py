"""`torch.compile` of a region of the model, or of backward itself."""

from __future__ import annotations

import functools
from typing import Any

import torch

from syncverify.playing.program.graphs.losses import Losses
from syncverify.playing.program.graphs.products import dot


def compiled_region(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Compile the product."""
    result: torch.Tensor = _compiled()(local, constant)
    return result


def compiled_autograd(losses: Losses) -> None:
    """Trace the graph of backward, and run the traced graph."""
    # Imported here: the import takes a second, and few scenarios compile.
    from torch._dynamo.compiled_autograd import _enable as enable_compiled_autograd

    with enable_compiled_autograd(torch.compile(backend="eager", dynamic=True)):
        losses.total().backward()


@functools.cache
def _compiled() -> Any:
    # `aot_eager` traces and differentiates ahead of time as the default backend does. It
    # generates no code, which would need a compiler and minutes.
    return torch.compile(dot, backend="aot_eager", dynamic=True)
