"""Values as the text of a Python program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from syncverify.scenario.distribution import in_format

_SPECIAL = {"inf": "torch.inf", "-inf": "-torch.inf", "nan": "torch.nan"}


def tensor_by_rank(
    values: Mapping[int, torch.Tensor], dtype: str, memory_format: str = "contiguous"
) -> str:
    """Return an expression for a tensor that may differ between ranks.

    Args:
        values: The tensor, by global rank. Where they differ, the expression reads `rank`.
        dtype: Name of the dtype.
        memory_format: Name of a format that `in_format` knows.
    """
    typed = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if len({value.shape for value in values.values()}) > 1:
        return _by_rank(
            {r: tensor_by_rank({r: v}, dtype, memory_format) for r, v in values.items()}
        )
    value = next(iter(values.values()))
    if not value.numel():
        return f"torch.zeros({tuple(value.shape)}{typed})"
    numbers = {r: _number_text(v.double().tolist()) for r, v in values.items()}
    text = f"torch.tensor({_by_rank(numbers)}{typed})"
    plain = value.contiguous()
    is_laid_out = in_format(plain, memory_format).stride() != plain.stride()
    return f"in_format({text}, {memory_format!r})" if is_laid_out else text


def _number_text(number: Any) -> str:
    if isinstance(number, list):
        return f"[{', '.join(map(_number_text, number))}]"
    return _SPECIAL.get(str(number), str(number))


def _by_rank(texts: Mapping[int, str]) -> str:
    """Return one expression for texts that may differ between ranks."""
    if len({*texts.values()}) == 1:
        return next(iter(texts.values()))
    if [*texts] == [*range(len(texts))]:
        return f"[{', '.join(texts.values())}][rank]"
    listed = ", ".join(f"{rank}: {text}" for rank, text in texts.items())
    return f"{{{listed}}}[rank]"
