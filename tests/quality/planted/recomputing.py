"""Planted defects of synchronizers that watch the recomputation of checkpoints.

The recomputation of a reentrant checkpoint brings gradients by a nested backward. That of
another checkpoint brings no gradients.
"""

from collections import Counter
from typing import Any

import torch
from torch import nn

from tests.quality.planted.graph_words import shown
from tests.quality.planted.watching import HearsGradients, WatchesBackwards


class CountsRecomputed(HearsGradients, WatchesBackwards):
    """Correct: counts uses that are computed again, and gradients, of each micro-batch."""

    def bind(self) -> None:
        super().bind()
        self.uses: Counter[nn.Parameter] = Counter()
        self.came: Counter[nn.Parameter] = Counter()
        self.is_last = False

    def run_micro_batch(self, *args: Any, is_last: bool, **kwargs: Any) -> None:
        self.is_last = is_last
        self.uses.clear()
        self.came.clear()
        super().run_micro_batch(*args, is_last=is_last, **kwargs)

    def recomputed(self, parameter: nn.Parameter) -> None:
        self.uses[parameter] += 1

    def accumulated(self, parameter: nn.Parameter) -> None:
        self.came[parameter] += 1


@shown("use=checkpointed")
class ExpectsGradientOfRecomputed(CountsRecomputed):
    """Waits for as many gradients as uses were computed again."""

    def recomputed(self, parameter: nn.Parameter) -> None:
        if torch.is_grad_enabled():
            super().recomputed(parameter)

    def wait(self) -> None:
        late = {p for p in self.parameters if self.came[p] < self.uses[p]}
        self.left_out |= late
        super().wait()


@shown("use=checkpointed_reentrant", cause="unexplained")
class DoneWhenRecomputedCame(CountsRecomputed):
    """Takes a parameter for done after its recomputed uses, though more may follow."""

    def accumulated(self, parameter: nn.Parameter) -> None:
        super().accumulated(parameter)
        is_done = self.uses[parameter] == self.came[parameter]
        if self.is_last and is_done and parameter not in self.left_out:
            self.reduce(parameter.grad)
            self.left_out.add(parameter)


@shown("use=checkpointed_nested")
class TakesInnerForwardForEvaluation(CountsRecomputed):
    """Takes uses under `no_grad` beside others for an evaluation, and leaves out the parameter."""

    def recomputed(self, parameter: nn.Parameter) -> None:
        if torch.is_grad_enabled():
            super().recomputed(parameter)
        else:
            self.noted[parameter] = True

    def wait(self) -> None:
        self.left_out |= {p for p in self.noted if self.uses[p]}
        self.noted.clear()
        super().wait()
