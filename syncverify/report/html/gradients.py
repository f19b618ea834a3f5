"""Gradients after `wait()` beside the right ones, as plain values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.after_wait import AfterWait
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.values import after_wait
from syncverify.judge.rounding import explain_rounded
from syncverify.scenario.feature_table import PLAIN

_MOST_ELEMENTS: Final = 32
_MOST_GRADIENTS: Final = 240
_NONE: Final = "no gradient"


def gradients_of(judgement: Judgement) -> list[dict[str, Any]]:
    """List expected and observed gradients, by step, parameter and rank."""
    if not judgement.run.carries_data:
        return []
    explains = explain if judgement.scenario.module == PLAIN else explain_rounded
    return [
        _gradient(expected, observation.gradients[expected.spec.name], explains)
        for expected, observation in itertools.islice(
            _judged(judgement), _MOST_GRADIENTS
        )
    ]


def _judged(judgement: Judgement) -> Iterator[AfterWait]:
    pairs = itertools.chain(
        after_wait(judgement, reduced=True), after_wait(judgement, reduced=False)
    )
    return (pair for pair in pairs if not judgement.was_refused(pair[0].step))


def _gradient(
    expected: ExpectedGradient, observed: torch.Tensor | None, explains: Any
) -> dict[str, Any]:
    cause = explains(expected, observed)
    value = expected.value()
    return {
        "parameter": expected.spec.name,
        "rank": expected.rank,
        "step": expected.step,
        "expected": elements(value),
        "observed": elements(observed),
        "why": "" if cause is None else cause.text,
        "wrong": cause is not None,
        "expected_mean": _mean(value),
        "observed_mean": _mean(observed),
    }


def elements(tensor: torch.Tensor | None) -> str:
    """Write the first elements of a gradient, whole numbers without a fraction."""
    if tensor is None:
        return _NONE
    listed = tensor.to(torch.float64).reshape(-1)[:_MOST_ELEMENTS].tolist()
    words = [str(int(e)) if e.is_integer() else f"{e:.6g}" for e in listed]
    more = tensor.numel() - len(listed)
    return ", ".join(words) + (f", and {more:,} more" if more else "")


def _mean(tensor: torch.Tensor | None) -> float | str:
    """Return the mean magnitude, 0 of no elements, or why there is none."""
    if tensor is None:
        return _NONE
    mean = tensor.to(torch.float64).abs().mean().item() if tensor.numel() else 0.0
    return mean if math.isfinite(mean) else "not finite"
