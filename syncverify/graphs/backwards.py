"""Which function runs backward for which word of `BACKWARDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from syncverify.graphs import compiled, hooks, modes, reentrancy, roots, split, threads
from syncverify.graphs.errors import RAISES, failing_first
from syncverify.graphs.losses import Losses
from syncverify.vocabulary import PLAIN

# Accumulates the plain gradient of all terms into every `.grad`, exactly.
Backward = Callable[[Losses], None]

_FUNCTIONS: Final[tuple[Backward, ...]] = (
    roots.inputs,
    roots.inputs_in_turn,
    roots.several_roots,
    roots.grad_tensors,
    roots.grad_beside,
    roots.twice_over_one_graph,
    modes.create_graph,
    hooks.hooks_of_others,
    reentrancy.reentrant,
    reentrancy.deep_reentrant,
    threads.on_threads,
    modes.anomaly,
    hooks.loss_scaling,
    *map(failing_first, RAISES.values()),
    split.split,
    compiled.compiled_autograd,
)
BACKWARDS: Final[Mapping[str, Backward]] = {
    PLAIN: roots.plain,
    **{function.__name__: function for function in _FUNCTIONS},
}


def run_backward(word: str, losses: Losses) -> None:
    """Run the backward of a micro-batch.

    Args:
        word: Of `BACKWARDS`.
        losses: Of the micro-batch. Without a parameter all words mean the same.
    """
    BACKWARDS[word if losses.parameters else PLAIN](losses)


def num_backwards(word: str) -> int:
    """Count the outermost backwards of one micro-batch that bring a parameter gradients."""
    return 2 if word == "twice_over_one_graph" else 1
