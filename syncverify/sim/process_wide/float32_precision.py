"""Precision of float32 products and convolutions, which torch sets in common or for each backend.

torch refuses to return the common setting after a setting of one backend or operator has made
the parts differ. The parts are the value then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import torch
from typing_extensions import override

_BACKENDS: Any = torch.backends  # the stubs do not know all of its attributes
# Objects with an attribute `fp32_precision`, by the name in a text.
_MATRIX_PRODUCTS: Final[Mapping[str, Any]] = {
    "CUDA": _BACKENDS.cuda.matmul,
    "oneDNN": _BACKENDS.mkldnn.matmul,
}
_CUDNN: Final[Mapping[str, Any]] = {
    "convolutions": _BACKENDS.cudnn.conv,
    "recurrent layers": _BACKENDS.cudnn.rnn,
}


class Parts(NamedTuple):
    """Precision of each part; as text, `CUDA tf32, oneDNN ieee` for example.

    Attributes:
        names: Names of the parts.
        precisions: Value of `fp32_precision` of each part.
    """

    names: tuple[str, ...]
    precisions: tuple[str, ...]

    @override
    def __str__(self) -> str:
        return ", ".join(map(" ".join, zip(*self, strict=True)))


def of_products() -> str | Parts:
    """Return the common precision of matrix products, or that of each backend."""
    with suppress(RuntimeError):
        return torch.get_float32_matmul_precision()
    return _parts(_MATRIX_PRODUCTS)


def set_of_products(value: str | Parts) -> None:
    """Set the precision of matrix products to a value that was read."""
    # The common value behind the parts cannot be read; it was "highest" unless it was set too.
    torch.set_float32_matmul_precision("highest" if isinstance(value, Parts) else value)
    if isinstance(value, Parts):
        _set_parts(_MATRIX_PRODUCTS, value)


def tf32_in_cudnn() -> bool | Parts:
    """Return whether cuDNN uses TF32, or the precision of each operator."""
    with suppress(RuntimeError):
        return torch.backends.cudnn.allow_tf32
    return _parts(_CUDNN)


def set_tf32_in_cudnn(value: bool | Parts) -> None:  # noqa: FBT001  # a value that was read
    """Set cuDNN's use of TF32 to a value that was read."""
    if isinstance(value, Parts):
        _set_parts(_CUDNN, value)
    else:
        torch.backends.cudnn.allow_tf32 = value


def _parts(flags: Mapping[str, Any]) -> Parts:
    return Parts(tuple(flags), tuple(each.fp32_precision for each in flags.values()))


def _set_parts(flags: Mapping[str, Any], parts: Parts) -> None:
    for each, precision in zip(flags.values(), parts.precisions, strict=True):
        each.fp32_precision = precision
