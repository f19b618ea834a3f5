"""The words that scenarios consist of, each with what it means.

The first word of each table is what happens in a plain training step; scenarios leave it
out of their JSON, and shrinking leads to it.
"""

from __future__ import annotations

from typing import Final

PLAIN: Final = "plain"

MEMORY_FORMATS: Final = {
    "contiguous": "row-major and dense",
    "transposed": "dense, with the last two dims swapped in memory",
    "channels_last": "4-dim, channels innermost in memory",
}

USED: Final = {
    "always": "every rank's every micro-batch uses the parameter",
    "never": "no rank's loss depends on it",
    "not_on_odd_ranks": "losses of odd ranks do not depend on it",
    "not_in_first_micro_batch": "the first micro-batch of each step does not use it",
    "not_in_last_micro_batch": "the last micro-batch of each step does not use it",
}

USES: Final = {
    PLAIN: "one product in the loss",
    "twice": "two products in one loss",
}

BACKWARDS: Final = {
    PLAIN: "`loss.backward()`",
}

# What takes long is played where it is asked for, and not drawn; with the reason.
RARE: Final[dict[str, str]] = {}

EVENTS: Final = {
    PLAIN: "as many backwards as agreed, `wait()`, `zero_grad()`",
    "wait_twice": "`wait()` is called again before gradients are read",
    "zero_before_wait": "`zero_grad()` is called without `wait()`: the step is thrown away",
    "set_to_none": "the caller sets every `.grad` to None after `zero_grad()`",
    "empty_step": "no backward at all, then `wait()` and `zero_grad()`",
    "extra_backward": "one backward more than agreed",
    "missing_backward": "one backward fewer than agreed",
    "rebind": "`unbind()` and `bind()` follow the step",
    "raise_in_backward": "an operator raises in the last backward; the step is dropped",
    "freeze": "parameters of odd index are frozen before the step",
    "cast": "`parameter.data` becomes double precision before the step",
}

LAUNCHES: Final = {
    "current_stream": "everything on the stream that is current",
    "step_on_side_stream": "bound on the default stream, steps run on another one",
    "bind_on_side_stream": "bound on another stream, steps run on the default one",
    "parameter_streams": "each parameter's forward runs on a stream of its own",
}

READINESS: Final = {
    "same": "gradients become ready in one order on all ranks",
    "by_rank": "gradients become ready in an order that depends on the rank",
}
