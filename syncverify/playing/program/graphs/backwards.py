"""The function of each word of `BACKWARDS`, which runs the backward of a micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from syncverify.playing.program.graphs import (
    compiled,
    hooks,
    modes,
    own_accumulation,
    reentrancy,
    roots,
    threads,
)
from syncverify.playing.program.graphs.errors import RAISES, failing_first
from syncverify.playing.program.graphs.losses import Losses
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario

# Accumulates into every `.grad` exactly the gradient of the sum of all terms.
RunBackward = Callable[[Losses], None]

_FUNCTIONS: Final[tuple[RunBackward, ...]] = (
    roots.inputs,
    roots.inputs_in_turn,
    roots.several_roots,
    roots.grad_tensors,
    roots.grad_beside,
    roots.twice_over_one_graph,
    modes.create_graph,
    hooks.hooks_of_others,
    hooks.hook_writes_grad,
    reentrancy.reentrant,
    reentrancy.deep_reentrant,
    threads.on_threads,
    modes.anomaly,
    hooks.loss_scaling,
    *map(failing_first, RAISES.values()),
    roots.split,
    compiled.compiled_autograd,
    own_accumulation.split_by_hand,
    hooks.hook_reads_grad,
)
BACKWARDS: Final[Mapping[str, RunBackward]] = {
    PLAIN: roots.plain,
    **{function.__name__: function for function in _FUNCTIONS},
}


def run_backward(word: str, losses: Losses) -> None:
    """Run the backward of a micro-batch; without a parameter all words run the plain one."""
    BACKWARDS[word if losses.parameters else PLAIN](losses)


def backwards_per_micro_batch(word: str) -> int:
    """Return the number of gradients of a parameter that the caller announces for a micro-batch.

    A nested backward brings one more, which is not announced.
    """
    return 2 if word == "twice_over_one_graph" else 1


def num_backwards(scenario: Scenario, step: int) -> int:
    """Return the number of gradients of a parameter that the caller announces for a step.

    A synchronizer counts gradients, not micro-batches: the word `twice_over_one_graph` brings two
    gradients to a parameter in one micro-batch.
    """
    return scenario.accumulations[step] * backwards_per_micro_batch(scenario.backward)
