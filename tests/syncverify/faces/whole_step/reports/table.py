"""Which mistake each report has, and how a comparison with one rank names it."""

import inspect
from dataclasses import dataclass
from typing import Final

from syncverify import parity
from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import (
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
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.reports import experts, layers, steps
from tests.syncverify.faces.whole_step.reports.mixture import Reported

# The names of a training that `parity` takes.
_NAMES: Final = inspect.signature(parity).parameters


@dataclass(frozen=True, slots=True)
class Report:
    """A public report, and what the comparison says: no quantity and cause if ranks do not end."""

    number: str  # with the project
    kind: str
    training: type[Reported]
    quantity: Quantity | None
    cause: StepMistake | None
    names: frozenset[str]  # of the values that are wrong
    words: str
    spread: frozenset[str] = frozenset()  # wrong because of these; unknown if empty

    @property
    def url(self) -> str:
        project, number = self.number.split("#")
        return f"https://github.com/{project}/{self.kind}/{number}"

    @property
    def name(self) -> str:
        return f"{self.training.__module__.rpartition('.')[2]}.{self.training.__name__}"

    @property
    def mistake(self) -> str:
        return self.training.__doc__


def play(report: Report, *, is_repaired: bool) -> Parity:
    """Compare a report's training with one rank, as it was reported or repaired."""
    training = report.training(is_repaired=is_repaired)
    return parity(**{n: getattr(training, n) for n in _NAMES if hasattr(training, n)})


def _over(*axes: str) -> frozenset[str]:
    return frozenset(axes)


def _size(axis: str) -> frozenset[frozenset[str]]:
    return frozenset({_over(axis)})


_DENSE: Final = _over("below.weight", "below.bias", "gate.weight")

REPORTS: Final = (
    Report(
        "NVIDIA/Megatron-LM#5916", "pull", experts.MegatronLM5916,
        Quantity.NORM, NormOfOneRank(("experts",), _over("ep")), _over("norm"),
        "adds the squares of experts of one rank of `ep` alone",
    ),
    Report(
        "NVIDIA/Megatron-LM#6080", "pull", experts.MegatronLM6080,
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("experts"),
        "lacks the sum over `tp`",
    ),
    Report(
        "NVIDIA/Megatron-LM#7165", "pull", experts.MegatronLM7165,
        Quantity.GRADIENT, Scaled(2.0, _size("gtp")), _over("experts"),
        "multiplied by 2, the number of ranks of `gtp`",
    ),
    Report(
        "NVIDIA/Megatron-LM#5047", "pull", steps.MegatronLM5047,
        Quantity.GRADIENT, Scaled(0.5, _size("tp")), _over("gate.weight"),
        "divided by 2, the number of ranks of `tp`",
    ),
    Report(
        "NVIDIA/Megatron-LM#7186", "pull", steps.MegatronLM7186,
        Quantity.GRADIENT, MicroBatchesWeighted((0.0, 1.0)), _DENSE | {"experts"},
        "the micro-batches of a rank count 0, 1 times what they should",
    ),
    Report(
        "NVIDIA-NeMo/RL#3716", "issues", layers.NemoRL3716,
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("norm.weight", "norm.bias"),
        "lacks the sum over `tp`",
    ),
    Report(
        "pytorch/torchtitan#2387", "issues", experts.Torchtitan2387,
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("gate.weight"),
        "lacks the sum over `tp`", _over("below.weight", "below.bias"),
    ),
    Report(
        "pytorch/torchtitan#4054", "pull", experts.Torchtitan4054,
        Quantity.GRADIENT, LacksSum(_over("tp")), _DENSE,
        "lacks the sum over `tp`",
    ),
    Report(
        "huggingface/transformers#39648", "issues", steps.Transformers39648,
        Quantity.GRADIENT, Scaled(2.0, _size("tp")), _DENSE | {"experts"},
        "multiplied by 2, the number of ranks of `tp`",
    ),
    Report(
        "huggingface/transformers#46113", "issues", steps.Transformers46113,
        Quantity.STEPPED, NotClipped(0.0), _DENSE | {"experts"},
        "of clipping is not applied",
    ),
    Report(
        "huggingface/transformers#48205", "pull", experts.Transformers48205,
        Quantity.GRADIENT, LacksSum(_over("ep")), _over("gate.weight"),
        "lacks the sum over `ep`",
    ),
    Report(
        "NVIDIA-NeMo/Automodel#3816", "issues", experts.Automodel3816,
        Quantity.NORM, NormOf(("experts",), _over("ep"), is_missing=True), _over("norm"),
        "does not add the squares of experts over `ep`",
    ),
    Report(
        "deepspeedai/DeepSpeed#7837", "issues", steps.DeepSpeed7837Scale,
        Quantity.GRADIENT, Scaled(1.52587891e-05, frozenset(), is_scale=True),
        _DENSE | {"experts"},
        "divided by the scale of the loss, 65536",
    ),
    Report(
        "deepspeedai/DeepSpeed#7837", "issues", steps.DeepSpeed7837Clear,
        Quantity.GRADIENT, NotCleared(), _DENSE | {"experts"},
        "still has the gradient of the step before",
    ),
    Report(
        "NVIDIA-NeMo/Megatron-Bridge#5396", "pull", experts.MegatronBridge5396,
        Quantity.START, RanksDiffer((1,), _over("ep")), _over("shared_a"),
        "copies differ over `ep`",
    ),
    Report(
        "modelscope/mcore-bridge#173", "pull", layers.McoreBridge173,
        Quantity.GRADIENT, LacksSum(_over("tp")), _over("up_a"),
        "lacks the sum over `tp`",
    ),
    Report(
        "hao-ai-lab/FastVideo#1666", "issues", layers.FastVideo1666,
        Quantity.GRADIENT, LacksSum(_over("dp"), 0.5), _over("2.weight", "2.bias"),
        "lacks the sum over `dp`",
    ),
    Report(
        "volcengine/verl#6176", "issues", steps.Verl6176,
        None, None, frozenset(),
        "no rank can go on",
    ),
)  # fmt: skip
