"""How custom functions are called: torch leaves `apply` without types."""

from __future__ import annotations

from typing import Any

import torch


def call(function: type[torch.autograd.Function], *arguments: object) -> Any:
    """Apply a custom function."""
    return function.apply(*arguments)
