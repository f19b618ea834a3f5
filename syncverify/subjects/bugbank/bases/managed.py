"""The arguments and the hooks of a synchronizer, which all bases have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from syncverify.subjects.bugbank.bases.placements import BYTES_PER_MB


class Managed:
    """Keeps the arguments, and removes the hooks in the end."""

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self.param_groups = param_groups
        self.cap_bytes = bucket_size_mb * BYTES_PER_MB
        self.required = require_accumulations
        self.parameters = [*dict.fromkeys(self.trainable())]
        self.handles: list[torch.utils.hooks.RemovableHandle] = []
        # Empty until `bind()`, and always where a base has no buckets.
        self.buckets: list[Any] = []

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Change the number of micro-batches of a step."""
        self.required = require_accumulations

    def trainable(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that have gradients."""
        for group in self.param_groups:
            yield from filter(lambda parameter: parameter.requires_grad, group)

    def register(
        self, parameter: nn.Parameter, hook: Callable[[nn.Parameter], None]
    ) -> None:
        """Have a hook called after each accumulation of a parameter."""
        self.handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def unbind(self) -> None:
        """Leave nothing behind."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
