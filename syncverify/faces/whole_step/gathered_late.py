"""Parameters that the next forward writes: their values after a step are those before it.

A rank may keep a shard that its optimizer updates, and gather the parameters of the model in the forward
pass. After the step these have the values of the step before, or none. So the values that the next
backward sees are compared, and those of the last step are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from syncverify.errors import UsageError
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.values import Quantity, RankValues, StepValues

_Tensors = dict[str, torch.Tensor | None]


def gathered_late(training: Training, values: RankValues) -> RankValues:
    """Return values of a rank, with the parameters that the next forward gathers.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        values: Values of the rank.

    Raises:
        UsageError: There is one step, and so no next forward.
    """
    left = [_left(each) for each in values.steps]
    if len(left) == 1 and left[0] and training.variation is None:
        raise UsageError(
            f"the optimizer leaves {min(left[0])} as it is, and updates other tensors: the forward "
            "of the next step may gather it; make two steps or more"
        )
    steps, late = [*values.steps], set[str]()
    for index, following in enumerate(values.steps[1:]):
        step = steps[index]
        seen = {n: following.used[n] for n in left[index] if n in following.used}
        found = {
            n: v for n, v in seen.items() if not _is_equal(v, _parameters(step)[n])
        }
        steps[index] = _with(step, _parameters(step) | found)
        late |= {*found}
    kept = {n: v for n, v in _parameters(steps[-1]).items() if n not in late & left[-1]}
    steps[-1] = _with(steps[-1], kept)
    return replace(values, steps=tuple(steps), late=frozenset(late & left[-1]))


def _left(step: StepValues) -> set[str]:
    """Return the parameters that a step leaves as its backward saw them, or without elements."""
    after = _parameters(step)
    return {
        name
        for name, used in step.used.items()
        if name in step.read_elsewhere | step.copied
        if (value := after.get(name)) is not None
        if not value.numel() or _is_equal(value, used)
    }


def _parameters(step: StepValues) -> _Tensors:
    return dict(step.tensors.get(Quantity.PARAMETER, {}))


def _with(
    step: StepValues, parameters: Mapping[str, torch.Tensor | None]
) -> StepValues:
    return replace(step, tensors={**step.tensors, Quantity.PARAMETER: parameters})


def _is_equal(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    if one is None or two is None or one.shape != two.shape:
        return one is two
    return torch.equal(one, two)
