"""Checks of a played training, before its values are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syncverify.errors import UsageError
from syncverify.whole_step.training import Training
from syncverify.whole_step.values import Quantity, RankValues


def check_values(
    training: Training, ranks: Sequence[RankValues], one_rank: RankValues
) -> None:
    """Check that there are values to compare.

    Raises:
        UsageError: No parameter has a name that build() gives, or no optimizer steps.
    """
    names = dict.fromkeys(name for each in ranks for name in each.start)
    if not {*names} & {*one_rank.start}:
        raise UsageError(
            "no parameter can be compared: parallelize() returns "
            f"{_first(names) or 'no parameters'}, and build() makes {_first(one_rank.start)}"
        )
    # A scaler may skip all steps, as a mistake of the training.
    if training.scaler is None and not any(map(_num_steps, ranks)):
        raise UsageError(
            "no rank calls step() of a torch.optim.Optimizer in any step; step() of the "
            "training has to make the whole step, with the optimizer's"
        )


def _first(names: Iterable[str]) -> str:
    listed = [*names]
    return ", ".join(map(repr, listed[:3])) + (", ..." if len(listed) > 3 else "")


def _num_steps(values: RankValues) -> float:
    counts = (each.tensors[Quantity.SKIPPED]["steps"] for each in values.steps)
    return sum(float(each) for each in counts if each is not None)
