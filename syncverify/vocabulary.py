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
    "extra_backward": "one backward more than agreed, before `wait()`",
    "missing_backward": "one backward fewer than agreed, then `wait()`",
    "tail": "one backward fewer than agreed, then `flush()` if there is one, and `wait()`",
    "rebind": "`unbind()` and `bind()` follow the step",
    "raise_in_backward": (
        "the training program raises in the middle of the last backward, on every rank; "
        "`reset()` if there is one, else `zero_grad()`, throws the step away"
    ),
    "freeze": "every other trainable parameter is frozen, from this step on",
    "cast": "`module.double()` is called before the step",
    "move": "parameters and gradients move, as `module.to(device)` does, before the step",
}

LAUNCHES: Final = {
    "current_stream": "everything on the stream that is current",
    "step_on_side_stream": "bound on the default stream, steps run on another one",
    "bind_on_side_stream": (
        "made, bound and unbound on another stream, steps run on the default one"
    ),
    "parameter_streams": "each parameter's forward runs on a stream of its own",
}

MODULES: Final = {
    PLAIN: "no module: a sum of products, with gradients that are exact",
    "mlp": "two linear layers",
    "conv": "a convolutional net",
    "conv_channels_last": "a convolutional net on images in channels-last format",
    "moe": "a mixture of experts, which the last mesh axis spreads, and their router",
    "gpt": "one transformer block between tied embeddings",
}

READINESS: Final = {
    "same": "gradients become ready in one order on all ranks",
    "by_rank": "each rank starts with another parameter, and goes on in one order",
}
