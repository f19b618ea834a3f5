"""Which mistake each report has, and how a comparison with one rank names it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from syncverify import parity
from syncverify.whole_step.causes import (
    LacksSum,
    MicroBatchesWeighted,
    NormOf,
    NormOfOneRank,
    NotCleared,
    NotClipped,
    RanksDiffer,
    Scaled,
    StepMistake,
)
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.reports import mixture

# The names of a module that `parity` takes.
_NAMES: Final = inspect.signature(parity).parameters


@dataclass(frozen=True, slots=True)
class Report:
    """A public report.

    Attributes:
        number: Project and number.
        kind: Whether it is an issue or a pull request.
        file: Name of the module beside this one that rebuilds its mistake.
        quantity: The quantity that is wrong first; None where the ranks do not end.
        cause: The mistake; None where the ranks do not end.
        names: The values that are wrong.
        words: A part of the text that the comparison prints.
    """

    number: str
    kind: str
    file: str
    quantity: Quantity | None
    cause: StepMistake | None
    names: frozenset[str]
    words: str

    @property
    def url(self) -> str:
        """Address of the report."""
        project, number = self.number.split("#")
        return f"https://github.com/{project}/{self.kind}/{number}"

    @property
    def module(self) -> ModuleType:
        """The rebuilt training."""
        return import_module(f"{__package__}.{self.file}")

    @property
    def mistake(self) -> str:
        """The mistake, in a sentence."""
        assert self.module.__doc__ is not None
        return self.module.__doc__.splitlines()[0]


def play(report: Report, *, is_repaired: bool) -> Parity:
    """Compare a report's training with one rank, as it was reported or repaired."""
    values = {
        name: _repaired(value, is_repaired=is_repaired)
        for name, value in (vars(mixture) | vars(report.module)).items()
        if name in _NAMES
    }
    return parity(**values)


def _repaired(value: Any, *, is_repaired: bool) -> Any:
    if not isinstance(value, Callable):  # type: ignore[arg-type]
        return value
    if "is_repaired" not in inspect.signature(value).parameters:
        return value
    return functools.partial(value, is_repaired=is_repaired)


def _over(*axes: str) -> frozenset[str]:
    return frozenset(axes)


def _size(axis: str) -> frozenset[frozenset[str]]:
    return frozenset({_over(axis)})


_DENSE: Final = _over("below.weight", "below.bias", "gate.weight")

REPORTS: Final = (
    Report(
        "NVIDIA/Megatron-LM#5916", "pull", "megatron_lm_5916",
        Quantity.NORM, NormOfOneRank(("experts",), _over("ep")), _over("norm"),
        "adds the squares of experts of one rank of `ep` alone",
    ),
    Report(
        "NVIDIA/Megatron-LM#6080", "pull", "megatron_lm_6080",
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("experts"),
        "lacks the sum over `tp`",
    ),
    Report(
        "NVIDIA/Megatron-LM#7165", "pull", "megatron_lm_7165",
        Quantity.GRADIENT, Scaled(2.0, _size("gtp")), _over("experts"),
        "multiplied by 2, the number of ranks of `gtp`",
    ),
    Report(
        "NVIDIA/Megatron-LM#5047", "pull", "megatron_lm_5047",
        Quantity.GRADIENT, Scaled(0.5, _size("tp")), _over("gate.weight"),
        "divided by 2, the number of ranks of `tp`",
    ),
    Report(
        "NVIDIA/Megatron-LM#7186", "pull", "megatron_lm_7186",
        Quantity.GRADIENT, MicroBatchesWeighted((0.0, 1.0)), _DENSE | {"experts"},
        "the micro-batches of a rank count 0, 1 times what they should",
    ),
    Report(
        "NVIDIA-NeMo/RL#3716", "issues", "nemo_rl_3716",
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("norm.weight", "norm.bias"),
        "lacks the sum over `tp`",
    ),
    Report(
        "pytorch/torchtitan#2387", "issues", "torchtitan_2387",
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("gate.weight"),
        "lacks the sum over `tp`",
    ),
    Report(
        "pytorch/torchtitan#4054", "pull", "torchtitan_4054",
        Quantity.GRADIENT, LacksSum(_over("tp")), _DENSE,
        "lacks the sum over `tp`",
    ),
    Report(
        "huggingface/transformers#39648", "issues", "transformers_39648",
        Quantity.GRADIENT, Scaled(2.0, _size("tp")), _DENSE | {"experts"},
        "multiplied by 2, the number of ranks of `tp`",
    ),
    Report(
        "huggingface/transformers#46113", "issues", "transformers_46113",
        Quantity.STEPPED, NotClipped(0.0), _DENSE | {"experts"},
        "of clipping is not applied",
    ),
    Report(
        "huggingface/transformers#48205", "pull", "transformers_48205",
        Quantity.GRADIENT, LacksSum(_over("ep")), _over("gate.weight"),
        "lacks the sum over `ep`",
    ),
    Report(
        "NVIDIA-NeMo/Automodel#3816", "issues", "automodel_3816",
        Quantity.NORM, NormOf(("experts",), _over("ep"), is_missing=True), _over("norm"),
        "does not add the squares of experts over `ep`",
    ),
    Report(
        "deepspeedai/DeepSpeed#7837", "issues", "deepspeed_7837_scale",
        Quantity.GRADIENT, Scaled(1.52587891e-05, frozenset(), is_scale=True),
        _DENSE | {"experts"},
        "divided by the scale of the loss, 65536",
    ),
    Report(
        "deepspeedai/DeepSpeed#7837", "issues", "deepspeed_7837_clear",
        Quantity.GRADIENT, NotCleared(), _DENSE | {"experts"},
        "still has the gradient of the step before",
    ),
    Report(
        "NVIDIA-NeMo/Megatron-Bridge#5396", "pull", "megatron_bridge_5396",
        Quantity.START, RanksDiffer((1,), _over("ep")), _over("shared_a"),
        "copies differ over `ep`",
    ),
    Report(
        "modelscope/mcore-bridge#173", "pull", "mcore_bridge_173",
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("up_a"),
        "lacks the sum over `tp`",
    ),
    Report(
        "hao-ai-lab/FastVideo#1666", "issues", "fastvideo_1666",
        Quantity.GRADIENT, LacksSum(_over("dp"), 0.5), _over("2.weight", "2.bias"),
        "lacks the sum over `dp`",
    ),
    Report(
        "volcengine/verl#6176", "issues", "verl_6176",
        None, None, frozenset(),
        "no rank can go on",
    ),
)  # fmt: skip
