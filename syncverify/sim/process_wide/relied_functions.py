"""Functions of torch that a verdict relies on, which a subject may not replace.

A subject runs in the process that compares its gradients. With another `torch.equal` every
gradient would be right.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from syncverify.trace.source_files import is_harness_line

_OWNERS: Final[tuple[tuple[str, Any, tuple[str, ...]], ...]] = (
    (
        "torch",
        torch,
        ("allclose", "cat", "equal", "isclose", "isfinite", "stack", "where", "zeros"),
    ),
    (
        "torch.Tensor",
        torch.Tensor,
        ("all", "any", "clone", "detach", "double", "equal", "isfinite", "reshape"),
    ),
)
# As they are before any subject is imported.
_ORIGINALS: Final = tuple(
    (f"{text}.{name}", owner, name, getattr(owner, name))
    for text, owner, names in _OWNERS
    for name in names
)


def replaced() -> tuple[str, ...]:
    """Name the functions that a subject has replaced; those of the simulated machine are left out."""
    return tuple(
        text
        for text, owner, name, original in _ORIGINALS
        if (present := getattr(owner, name)) is not original
        and not _is_of_harness(present)
    )


def _is_of_harness(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and is_harness_line(code.co_filename)


def restore() -> None:
    """Put the functions back."""
    for _, owner, name, original in _ORIGINALS:
        if getattr(owner, name) is not original:
            setattr(owner, name, original)
