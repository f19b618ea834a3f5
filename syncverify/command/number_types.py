"""Types of options that are numbers: their errors speak of numbers, and NaN is none."""

from __future__ import annotations

import math
from typing import Any

import click
from typing_extensions import override


class WholeNumber(click.IntRange):
    """An integer from a least to a largest one."""

    name = "whole number"


class FiniteNumber(click.FloatRange):
    """A number within bounds; neither NaN, which no bound refuses, nor infinity."""

    name = "number"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
