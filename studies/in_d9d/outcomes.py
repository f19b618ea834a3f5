"""The outcome of each layout, as it is stored and shown."""

from dataclasses import dataclass

import torch

from studies.in_d9d.model import expected
from studies.in_d9d.trial import Steps, Trial


@dataclass(frozen=True, slots=True)
class Outcome:
    """The gradients of one layout, counted.

    Attributes:
        layout: Name of the layout.
        ranks: Number of processes.
        compared_with: What the gradients had to equal, bit by bit.
        gradients: Number that was compared, over all steps and ranks.
        wrong: Number that differ, with our synchronizer.
        wrong_of_d9d: Number that differ, with d9d's own.
        error: Why the trainer did not end, or "".
    """

    layout: str
    ranks: int
    compared_with: str
    gradients: int
    wrong: int
    wrong_of_d9d: int
    error: str = ""

    @property
    def is_right(self) -> bool:
        """Tell whether the trainer ended with the right gradients and our synchronizer."""
        return not (self.error or self.wrong) and bool(self.gradients)


def outcome_of(trial: Trial) -> Outcome:
    """Compare the gradients of a trial."""
    layout = trial.layout
    is_rounded = layout.max_norm is not None
    words = "d9d's synchronizer" if is_rounded else "one process"
    if trial.error:
        return Outcome(
            layout=layout.name,
            ranks=layout.num_ranks,
            compared_with=words,
            gradients=0,
            wrong=0,
            wrong_of_d9d=0,
            error=trial.error,
        )
    ours, theirs = trial.gradients["ours"], trial.gradients["d9d"]
    right = theirs if is_rounded else [expected(layout.data_parallel_size)] * len(ours)
    return Outcome(
        layout=layout.name,
        ranks=layout.num_ranks,
        compared_with=words,
        gradients=sum(len(step) for steps in ours for step in steps),
        wrong=_count_wrong(ours, right),
        wrong_of_d9d=_count_wrong(theirs, right),
    )


def _count_wrong(found: list[Steps], right: list[Steps]) -> int:
    return sum(
        not torch.equal(gradient, wanted[name])
        for steps, wanted_steps in zip(found, right, strict=True)
        for step, wanted in zip(steps, wanted_steps, strict=True)
        for name, gradient in step.items()
    )
