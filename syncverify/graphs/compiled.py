"""What `torch.compile` has taken over: a region of the model, or backward itself."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._dynamo.compiled_autograd import _enable as enable_compiled_autograd

from syncverify.graphs.losses import Losses
from syncverify.graphs.products import dot


def compiled_region(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Compile the product."""
    result: torch.Tensor = _compiled()(local, constant)
    return result


def compiled_autograd(losses: Losses) -> None:
    """Trace the graph of backward, and run what was traced."""
    with enable_compiled_autograd(torch.compile(backend="eager", dynamic=True)):
        losses.total().backward()


@functools.cache
def _compiled() -> Any:
    # Traced and differentiated ahead of time as by default, but no code is generated:
    # that takes a compiler, and long.
    return torch.compile(dot, backend="aot_eager", dynamic=True)
