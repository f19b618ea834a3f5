"""The vocabulary: the words that scenarios consist of, each with its meaning.

The first word of each table is the plain case. Scenarios leave it out of their JSON, and
shrinking leads to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PLAIN: Final = "plain"

MEMORY_FORMATS: Final = {
    "contiguous": "row-major and dense",
    "transposed": "dense, with the last two dims swapped in memory",
    "channels_last": "4-dim, channels innermost in memory",
}

ORDERS: Final = {
    "row_major": "ranks ascend along the last axis, then along the one before",
    "permuted": "ranks descend along the first axis, then along the next one",
}

USED: Final = {
    "always": "every rank's every micro-batch uses the parameter",
    "never": "no rank's loss depends on it",
    "undefined": "each loss depends on it by a function whose gradient is undefined",
    "not_on_odd_ranks": "losses of odd ranks do not depend on it",
    "not_in_first_micro_batch": "the first micro-batch of each step does not use it",
    "not_in_last_micro_batch": "the last micro-batch of each step does not use it",
}

# `used` names the ranks and micro-batches that use a parameter; `use` names the operators
# that they apply to it. `graphs/uses.py` has the function of each word.
USES: Final = {
    PLAIN: "one product in the loss",
    "twice": "two products in one loss",
    "added_to_another": (
        "added to another parameter of its shape: autograd hands both one gradient tensor"
    ),
    "many_times": "five products in one loss",
    "expanded": "`expand`: backward sums over the repetitions",
    "gathered": "each element is looked up twice, as in an embedding",
    "in_slices": "two views that share no element",
    "unbound": "`unbind`: one node with an output for each element",
    "restrided": "`as_strided`, every element twice",
    "in_place_on_copy": "a copy is multiplied in place",
    "in_place_on_views": "views of a copy are multiplied in place",
    "in_place_result_saved": "an operator in place saves its result",
    "written_after_use": "the parameter is written before backward, which needs no value",
    "detached_branch": "beside it a product with `detach()`",
    "no_grad_branch": "beside it a product under `no_grad`",
    "inference_branch": "beside it a product under `inference_mode`",
    "pruned_branch": "results that no root depends on",
    "masked": "`where`: elements go one of two ways",
    "saves_for_backward": "custom function: `setup_context`, `save_for_backward`",
    "marks_dirty": "custom function: `mark_dirty`",
    "non_differentiable": "custom function: `mark_non_differentiable`",
    "unmaterialized": "custom function: `set_materialize_grads(False)`",
    "needs_input_grad": "custom function: `needs_input_grad`",
    "differentiable_once": "custom function: `once_differentiable`",
    "none_gradient": "beside it a custom function that returns None as gradient",
    "cpp_function": "C++: `saved_data`, `needs_input_grad`, `is_traceable`",
    "cpp_kernel": "C++: a kernel under `AutoDispatchBelowADInplaceOrView`",
    "tensor_hooks": "hooks on an intermediate clip and replace its gradient",
    "node_hooks": "a pre-hook and a post-hook of a node replace gradients",
    "retained_gradient": "`retain_grad()` on an intermediate",
    "checkpointed": "two activation checkpoints, not reentrant",
    "checkpointed_reentrant": "two reentrant activation checkpoints",
    "checkpointed_and_not": "a reentrant activation checkpoint, and a product without one",
    "checkpointed_nested": "a reentrant activation checkpoint inside of another",
    "offloaded": "saved tensors are kept on the host (`save_on_cpu`)",
    "compressed": "saved tensors are kept as bytes (`saved_tensors_hooks`)",
    "double_backward": "the loss contains a gradient (`create_graph`)",
    "jacobian_rows": "the loss contains a Jacobian (`is_grads_batched`)",
    "hessian": "the loss contains a Hessian",
    "autocast": "a matrix product under autocast to bfloat16",
    "compiled_region": "the product is compiled (`torch.compile`)",
}

# `graphs/backwards.py` has the function of each word.
BACKWARDS: Final = {
    PLAIN: "`loss.backward()`",
    "inputs": "`backward(inputs=...)` with all parameters",
    "inputs_in_turn": "`backward(inputs=...)` for each parameter, over one kept graph",
    "several_roots": "each term is a separate root",
    "grad_tensors": "each term is halved, and its root's gradient is 2",
    "grad_beside": "`torch.autograd.grad` first, with a result that is not used",
    "twice_over_one_graph": "half of the gradient each by two backwards, both agreed on",
    "create_graph": "`backward(create_graph=True)`",
    "hooks_of_others": "the user's hooks on parameters halve a doubled gradient",
    "hook_writes_grad": (
        "a hook of the user, registered after `bind()`, adds each gradient to `.grad` by itself"
    ),
    "reentrant": "half of the gradient inside of another backward, and half in that one",
    "deep_reentrant": "`reentrant`, inside of more backwards than the engine nests on a thread",
    "on_threads": "one half of the parameters after the other, each on a thread",
    "anomaly": "under `set_detect_anomaly(True)`",
    "loss_scaling": "`GradScaler` scales the loss; hooks undo it",
    "failed_in_function": "a custom backward raises at first; then a good backward",
    "failed_in_tensor_hook": "a tensor's hook raises at first; then a good backward",
    "failed_in_node_hook": "a node's hook raises at first; then a good backward",
    "failed_in_reentrant_backward": "a nested backward raises first; then a good backward",
    "failed_in_place": "an illegal write in place is refused; then a good backward",
    "failed_over_freed_graph": "a freed graph is refused; then a good backward",
    "split": "input gradients first, weight gradients later",
    "compiled_autograd": "by compiled autograd",
}
# Words that accumulate a gradient in two halves, so that it has to be even.
HALVING: Final = frozenset({"twice_over_one_graph", "reentrant", "deep_reentrant"})
# Words that are played on request and never drawn, each with the reason.
RARE: Final = {
    "cpp_function": "takes a C++ compiler, and half a minute once",
    "cpp_kernel": "takes a C++ compiler, and half a minute once",
    "compiled_region": "takes seconds in every process",
    "compiled_autograd": "takes seconds in every process",
    "deep_reentrant": "callbacks run on threads of the engine, outside of `sim`'s ranks",
}

EVENTS: Final = {
    PLAIN: "as many backwards as agreed, `wait()`, `zero_grad()`",
    "wait_twice": "`wait()` is called again before gradients are read",
    "zero_before_wait": "`zero_grad()` is called without `wait()`: the step is thrown away",
    "set_to_none": "the caller sets every `.grad` to None after `zero_grad()`",
    "set_every_other_to_none": (
        "the caller sets every other `.grad` to None after `zero_grad()`"
    ),
    "empty_step": "no backward at all, then `wait()` and `zero_grad()`",
    "extra_backward": "one backward more than agreed, before `wait()`",
    "missing_backward": "one backward fewer than agreed, then `wait()`",
    "tail": "one backward fewer than agreed, then `flush()` if there is one, and `wait()`",
    "rebind": "`unbind()` and `bind()` follow the step",
    "rebind_announced": (
        "the next number of micro-batches is announced, then `unbind()` and `bind()` follow"
    ),
    "remade": "`unbind()` follows the step, and another synchronizer is made and bound",
    "unbind_early": (
        "`unbind()` without `wait()`, then `bind()`: the step is thrown away"
    ),
    "raise_in_backward": (
        "the training program raises in the middle of the last backward, on every rank; "
        "`reset()` if there is one, else `zero_grad()`, throws the step away"
    ),
    "freeze": "every other trainable parameter is frozen, from this step on",
    "unfreeze": (
        "every other trainable parameter is frozen at `bind()`, and trained from this step on"
    ),
    "unfreeze_in_turn": (
        "every other trainable parameter is frozen at `bind()`; from this step on, one more of "
        "them is trained in each step"
    ),
    "cast": "`module.double()` is called before the step",
    "cast_before_zero": "`module.double()` is called between `wait()` and `zero_grad()`",
    "move": "parameters and gradients move, as `module.to(device)` does, before the step",
    "failing_collectives": (
        "from this step on, each collective between ranks fails: its wait raises "
        "`DistBackendError`, and nothing is written"
    ),
}

# Other ways to do what a word says. A variant is spelled `word/way`, and belongs to the feature of
# its word: a contract covers both or none, and promises the same of both.
VARIANTS: Final[Mapping[str, Mapping[str, str]]] = {
    "used": {
        "never/in_first_step": "no loss of step 0 depends on it, all later ones do",
        "never/in_even_steps": "no loss of steps 0, 2, ... depends on it",
        "never/in_odd_steps": "no loss of steps 1, 3, ... depends on it",
    },
    "event": {
        "zero_before_wait/no_backward": (
            "`zero_grad()` alone, as before the first backward: no backward, no `wait()`"
        ),
        "set_to_none/no_backward": (
            "`zero_grad()` alone, then the caller sets every `.grad` to None"
        ),
        "set_to_none/replaced": (
            "the caller writes `p.grad = p.grad / 16` between `wait()` and `zero_grad()`"
        ),
        "set_to_none/replaced_while_accumulating": (
            "the caller sets every `.grad` to its copy after each micro-batch but the last"
        ),
        "rebind_announced/unbound": (
            "`unbind()`, then the next number of micro-batches is announced, then `bind()`"
        ),
    },
    "readiness": {
        "by_rank/by_step": (
            "each step starts with another parameter on all ranks, and goes on in one order"
        ),
    },
}
# Events of steps that have no backward.
_ZERO_ALONE: Final = ("zero_before_wait/no_backward", "set_to_none/no_backward")
WITHOUT_BACKWARD: Final = ("empty_step", *_ZERO_ALONE)
# Events of steps that are thrown away by `zero_grad()` without `wait()`.
WITHOUT_WAIT: Final = ("zero_before_wait", *_ZERO_ALONE)
# Events after which gradients are None, with the distance of such gradients.
DROPPING: Final = {
    "set_to_none": 1,
    "set_to_none/no_backward": 1,
    "set_every_other_to_none": 2,
}
# Events in which the caller puts other tensors in the place of gradients, with their factor.
REPLACING: Final = {
    "set_to_none/replaced": 1 / 16,
    "set_to_none/replaced_while_accumulating": 1,
}
# Events that change parameters, from a step on.
FREEZING: Final = ("freeze", "unfreeze", "unfreeze_in_turn")
BEFORE_STEP: Final = (*FREEZING, "cast", "move")
BEFORE_ZERO: Final = ("cast_before_zero",)
# Events after which the caller unbinds and binds.
REBINDING: Final = (
    "rebind",
    "rebind_announced",
    "rebind_announced/unbound",
    "remade",
    "unbind_early",
)

LAUNCHES: Final = {
    "current_stream": "everything on the stream that is current",
    "step_on_side_stream": "bound on the default stream, steps run on another one",
    "step_on_new_stream": "bound on the default stream, each step runs on another one",
    "bind_on_side_stream": (
        "made, bound and unbound on another stream, steps run on the default one"
    ),
    "parameter_streams": "each parameter's forward runs on its own stream",
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

SYNCHRONIZERS: Final = {
    "one": "one synchronizer has all parameters",
    "two": "two synchronizers have every other parameter each, and take turns",
}

GRADIENTS: Final = {
    "finite": "all gradients are finite",
    "inf": "Inf in one element, of one rank's first micro-batch of every other step",
    "nan": "NaN in one element, of one rank's first micro-batch of every other step",
}

# The table of each topic.
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "memory_format": MEMORY_FORMATS,
    "order": ORDERS,
    "used": USED,
    "use": USES,
    "backward": BACKWARDS,
    "event": EVENTS,
    "launch": LAUNCHES,
    "module": MODULES,
    "readiness": READINESS,
    "synchronizers": SYNCHRONIZERS,
    "gradient": GRADIENTS,
}


def base_word(word: str) -> str:
    """Return the word that a variant is a way of; a word that is no variant is its own."""
    return word.partition("/")[0]


def meaning(topic: str, word: str) -> str:
    """Return what a word or a variant of a topic means."""
    return {**TABLES[topic], **VARIANTS.get(topic, {})}[word]
