"""The features of scenarios beyond plain training steps, each with its usual promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from syncverify.scenario import vocabulary

Promise = Literal["right", "right_or_error"]

# Each feature with the promise that it demands. Not listed is the plain case, which every
# subject covers: a mesh of one or two named axes, dense parameters of up to three dims that
# every micro-batch uses once, and as many micro-batches as agreed. The tables of
# `vocabulary` start with the plain word, so `[1:]` leaves it out.
OPTIONAL_FEATURES: Final[Mapping[str, Mapping[str, Promise]]] = {
    "mesh": {"3 axes": "right", "unnamed": "right", "permuted": "right"},
    "placement": {
        "sub_mesh": "right",
        "strided": "right",
        "partial": "right_or_error",
    },
    "shape": {"4 dims": "right", "empty": "right"},
    "dtype": {"float64": "right", "own gradient dtype": "right"},
    "listed": {"twice": "right_or_error", "in two groups": "right_or_error"},
    "memory_format": {"transposed": "right", "channels_last": "right"},
    "used": {
        "never": "right_or_error",
        "undefined": "right_or_error",
        "not_on_odd_ranks": "right_or_error",
        "not_in_first_micro_batch": "right_or_error",
        "not_in_last_micro_batch": "right_or_error",
    },
    "use": dict.fromkeys(list(vocabulary.USES)[1:], "right"),
    "backward": {
        **dict.fromkeys(list(vocabulary.BACKWARDS)[1:], "right"),
        "deep_reentrant": "right_or_error",
        "compiled_autograd": "right_or_error",
    },
    "event": {
        "wait_twice": "right",
        "zero_before_wait": "right_or_error",
        "set_to_none": "right_or_error",
        "set_every_other_to_none": "right_or_error",
        "empty_step": "right_or_error",
        "extra_backward": "right_or_error",
        "missing_backward": "right_or_error",
        "tail": "right_or_error",
        "rebind": "right",
        "rebind_announced": "right",
        "unbind_early": "right_or_error",
        "remade": "right",
        "raise_in_backward": "right_or_error",
        "freeze": "right_or_error",
        "unfreeze": "right_or_error",
        "unfreeze_in_turn": "right_or_error",
        "cast": "right_or_error",
        "cast_before_zero": "right_or_error",
        "move": "right_or_error",
        "failing_collectives": "right_or_error",
    },
    "launch": dict.fromkeys(list(vocabulary.LAUNCHES)[1:], "right"),
    "readiness": {"by_rank": "right"},
    "synchronizers": {"two": "right"},
    "module": dict.fromkeys(list(vocabulary.MODULES)[1:], "right"),
}
# `features` of a contract that asks for all of them.
ALL_OPTIONAL_TOPICS: Final = frozenset(OPTIONAL_FEATURES)
