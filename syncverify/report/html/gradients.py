"""Gradients after `wait()` beside the right ones, as plain values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.properties.after_wait import AfterWait, after_wait
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import ExpectedGradient
from syncverify.judge.rounding import explain_rounded
from syncverify.scenario.feature_table import PLAIN

_MOST_ELEMENTS: Final = 32
_MOST_GRADIENTS: Final = 240

Numbers = list[float | str]


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
        "numel": value.numel(),
        "expected": _numbers(value),
        "observed": None if observed is None else _numbers(observed),
        "why": "" if cause is None else cause.text,
        "wrong": cause is not None,
        "expected_mean": _mean(value),
        "observed_mean": None if observed is None else _mean(observed),
    }


def _numbers(tensor: torch.Tensor) -> Numbers:
    """Return the first elements in order; `inf` and `nan`, which JSON lacks, as words."""
    listed = tensor.to(torch.float64).reshape(-1)[:_MOST_ELEMENTS].tolist()
    return [each if math.isfinite(each) else str(each) for each in listed]


def _mean(tensor: torch.Tensor) -> float | None:
    """Return the mean magnitude, 0 of no elements; None of numbers that are not finite."""
    mean = tensor.to(torch.float64).abs().mean().item() if tensor.numel() else 0.0
    return mean if math.isfinite(mean) else None
