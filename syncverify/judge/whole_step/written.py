"""The tensors that an operator writes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_iter


def written_in_place(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operator was given, and writes."""
    for index, name in _places(func):
        value = args[index] if index < len(args) else kwargs.get(name)
        for each in tree_iter(value):
            if isinstance(each, torch.Tensor):
                yield each


@functools.cache
def _places(func: Any) -> tuple[tuple[int, str], ...]:
    """Return index and name of each argument that an operator writes."""
    listed = enumerate(func._schema.arguments)  # noqa: SLF001  # there is no public one
    return tuple(
        (index, each.name)
        for index, each in listed
        if each.alias_info is not None and each.alias_info.is_write
    )
