"""The feature table: every content of scenarios that has a name, a row each.

Strategies, contracts, coverage, reports and pages read this table. A new row needs a function of
the rank program that plays it; most topics then draw it as they draw their other words.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from syncverify.scenario.coordinate_classes import representatives
from syncverify.scenario.feature_row import (
    BackwardRow,
    EventRow,
    Feature,
    Promise,
    Row,
    Topic,
    base_word,
    never,
)
from syncverify.scenario.layout import (
    RESHAPED,
    TRANSPOSED,
    contributing_ranks,
    local_bytes,
    local_shape,
    most_group_bytes,
    reduce_axes,
)
from syncverify.scenario.specs import (
    ABSENT,
    OWN_MESH,
    PARTIAL,
    REPLICATE,
    is_strided,
    sharded_dim,
)

# Version of the table. A contract means the values of one version; a row that is added later has
# the next version in `since`, so that no old contract promises it. A release raises it once.
TABLE_VERSION: Final = 2
PLAIN: Final = "plain"
# The value of `gradient` with sums over ranks that bfloat16 holds.
CANCELLING: Final = "cancelling"
MAX_AXES: Final = 3
MAX_STEPS: Final = 3
MAX_ACCUMULATIONS: Final = 4
# Least numbers that count as many. Scenarios are small, and now and then one number is large:
# widths of masks, chunks with a rest, rings that turn over and counters that overflow need it.
MANY: Final[Mapping[str, int]] = {
    "parameters": 32,
    "elements": 1024,
    "steps": 6,
    "long training": 12,
    "micro-batches": 8,
    "buckets": 17,
    "ranks": 5,
}
# Least number of elements of a huge parameter: 16 bits do not count them.
HUGE: Final = 2**16
# Least number of bytes of a vast one that a rank reduces, and their number of float32 elements.
_VAST_BYTES: Final = 2**20
VAST: Final = _VAST_BYTES // 4
# A gradient whose elements are zero on one rank.
ZERO: Final = "zero"
# The event from which on no collective works.
FAILING: Final = "failing_collectives"
# A scenario. Its module imports this one, to check its words.
_Scenario = Any


def over(num_axes: int) -> str:
    """Name a reduction over a number of mesh axes."""
    axes = "axis" if num_axes == 1 else "axes"
    return f"over {num_axes} {axes}" if num_axes else "none"


# Numbers of mesh axes by the names of reductions over them.
NUM_REDUCED_AXES: Final = {over(count): count for count in range(1, MAX_AXES + 1)}


def has_uneven_parts(scenario: _Scenario) -> bool:
    """Tell whether some parameter has local parts of several shapes."""
    ranks = representatives(scenario.mesh, scenario.parameters)
    return any(
        len({local_shape(scenario.mesh, spec, rank) for rank in ranks}) > 1
        for spec in scenario.parameters
    )


def _buckets(scenario: _Scenario) -> Iterator[str]:
    if len(scenario.groups) > 1:
        yield f"{len(scenario.groups)} groups"
    largest = most_group_bytes(scenario.mesh, scenario.parameters)  # on rank 0
    splits = largest > scenario.bucket_cap_bytes
    yield "cap splits" if splits else "cap does not split"


def _has_many_buckets(scenario: _Scenario) -> bool:
    """Tell whether many parameters are so large, on rank 0, that each has a bucket."""
    cap = scenario.bucket_cap_bytes
    large = (s for s in scenario.trainable if local_bytes(scenario.mesh, s, 0) >= cap)
    return sum(1 for _ in large) >= MANY["buckets"]


def _reduces_vast_one(scenario: _Scenario) -> bool:
    """Tell whether a rank reduces a gradient of a MiB or more."""
    return any(
        local_bytes(scenario.mesh, spec, 0) >= _VAST_BYTES
        for spec in scenario.trainable
        if reduce_axes(scenario.mesh, spec)
    )


def _reduces_over_unequal_axes(scenario: _Scenario) -> bool:
    """Tell whether two gradients are summed over equally many axes, and unequally many ranks."""
    mesh = scenario.mesh
    if len({*mesh.shape} - {1}) < 2:
        return False
    sizes = {
        (len(reduce_axes(mesh, spec)), len(contributing_ranks(mesh, spec, 0)))
        for spec in scenario.trainable
    }
    return len({num_axes for num_axes, _ in sizes}) < len(sizes)


# fmt: off
# Features of a backward that names the tensors whose gradients it computes.
_NAMING_INPUTS = (
    "backward=inputs", "backward=inputs_in_turn", "backward=split", "backward=split_by_hand")
# A reentrant checkpoint hides its parameters from the graph around it.
_REFUSED = "reentrant checkpoints refuse a backward that names its inputs"
_NAMES_NO_INPUTS = never(_REFUSED, *_NAMING_INPUTS)
_NAMES_NO_INPUTS_BESIDE = never(_REFUSED, "backward=grad_beside")
_EXCHANGING = ("event=cast", "event=cast_before_zero", "event=move")
_LOSES_HOOKS = never(
    "once DTensor parameters are exchanged, torch never calls the user's next hooks", *_EXCHANGING)
_WRITES_GRAD = never(
    "the gradient that is asked for comes to `.grad` as well", "backward=grad_beside"
) | never("hooks on gradients see zeros", "backward=hooks_of_others")
_OTHER_THREAD = never("another thread has another current stream", "launch")
_MODULE = (
    never("other features show on sums of products, at a fraction of the cost",
        "placement", "dtype=float64", "listed", "memory_format", "used", "use", "backward",
        "event", "launch", "readiness", "synchronizers", "evaluation", "replicas")
    | never("a module has its own parameters, with dims, on the mesh",
        "parameters=ordinary", "parameters=scalar")
    | never("a module has its own parameters", "size", "gradient", "buckets=3 groups")
    | never("a module has one dtype", "dtype=several")
    | never("modules are drawn in bfloat16, which rounds more and overflows less",
        "dtype=float16")
)
_ONE_MESH = never("a module lies on one mesh", "module") | never(
    "one rank has one mesh", "ranks=1")
_OWN_SHAPES = never("a module has its own shapes", "shape")
_NOT_EMPTY = never("a module has its own shapes", "shape=empty")
_NOT_SPREAD = never(
    "only experts are spread", "parameters=sharded", "parameters=uneven or empty shard")

# The order of topics and rows is part of the format of a seed, and the order of reports.
TOPICS: Final = (
    Topic("ranks", (), "mesh", values=lambda mesh: [str(mesh.num_ranks)], usual=("1", "2"),
        is_needed=True),
    Topic("mesh", (
        Row("1 axis", occurs=lambda mesh: len(mesh.shape) == 1,
            never_with=never("it has one axis", "reduction=over 2 axes", "reduction=over 3 axes")),
        Row("2 axes", occurs=lambda mesh: len(mesh.shape) == 2,
            never_with=never("it has two axes", "reduction=over 3 axes")),
        Row("axis of size 1", occurs=lambda mesh: 1 in mesh.shape,
            never_with=never("a reduction over an axis needs two ranks on it, and meshes have up to "
                "three axes", "reduction=over 3 axes")),
        Row("3 axes", "", "right", lambda mesh: len(mesh.shape) == 3),
        Row("unnamed", "axes have no names", "right", lambda mesh: not mesh.axis_names),
        Row("permuted", "ranks descend along the first axis, then along the next one", "right",
            lambda mesh: mesh.order == "permuted"),
    ), "mesh", one_in=3, usual=("1 axis", "2 axes")),
    Topic("parameters", (
        Row("replicated", occurs=lambda _, spec: {*(spec.placements or ())} == {REPLICATE}),
        Row("sharded", shows_on="trained",
            occurs=lambda _, spec: any(sharded_dim(code) is not None for code in spec.placements or ())),
        Row("uneven or empty shard", occurs=has_uneven_parts, part="scenario",
            never_with=never("one rank holds all", "ranks=1")),
        Row("ordinary", shows_on="trained", occurs=lambda _, spec: spec.placements is None),
        Row("frozen", shows_on="any", occurs=lambda _, spec: not spec.requires_grad),
        Row("scalar", occurs=lambda _, spec: not spec.global_shape),
    ), "parameter", usual=("replicated", "sharded")),
    Topic("dtype", (
        Row("float32"),
        Row("bfloat16"),
        Row("float16"),
        Row("several", part="scenario", is_beside=True, occurs=lambda scenario:
            len({(spec.dtype, spec.effective_grad_dtype) for spec in scenario.parameters}) > 1),
        Row("float64", "", "right"),
        Row("own gradient dtype", "", "right",
            lambda _, spec: spec.effective_grad_dtype != spec.dtype),
    ), "parameter", one_in=8, usual=("float32",), is_needed=True,
        values=lambda _, spec: dict.fromkeys((spec.dtype, spec.effective_grad_dtype))),
    Topic("reduction", (Row("none", shows_on="trained"), *map(Row, NUM_REDUCED_AXES)), "parameter",
        values=lambda mesh, spec: [over(len(reduce_axes(mesh, spec)))], usual=("none", over(1))),
    Topic("accumulations", (
        *(Row(str(n)) for n in range(1, MAX_ACCUMULATIONS + 1)),
        Row("varying", occurs=lambda scenario: len({*scenario.accumulations}) > 1, is_beside=True,
            never_with=never("one step has one count", "steps=1")),
    ), usual=("1", "2"), is_needed=True, values=lambda scenario:
        [str(n) for n in scenario.accumulations if n < MANY["micro-batches"]]),
    Topic("steps", tuple(Row(str(n)) for n in range(1, MAX_STEPS + 1)), usual=("1",),
        is_needed=True,
        values=lambda scenario: [str(n) for n in [scenario.num_steps] if n < MANY["steps"]]),
    Topic("buckets", (
        Row("cap splits"),
        Row("cap does not split"),
        Row("2 groups", is_beside=True),
        Row("3 groups", is_beside=True, gone_with="buckets=2 groups"),
    ), values=_buckets, usual=("cap does not split",), is_needed=True),
    Topic("gradient", (
        Row("inf", "Inf in one element, of one rank's first micro-batch of every other step",
            never_with=never("one parameter of a scenario overflows", "gradient=nan")),
        Row("nan", "NaN in one element, of one rank's first micro-batch of every other step"),
        Row(CANCELLING, "the first and the third micro-batch cancel out: bfloat16 has their sum "
            "over ranks and that of all, and not the sums in between",
            never_with=never("one parameter of a scenario is special", "gradient=inf",
                "gradient=nan"), fewest_micro_batches=3),
        Row(ZERO, "zero in all elements, on one rank, in every other step", since=2,
            never_with=never("one parameter of a scenario is special", "gradient=inf",
                "gradient=nan", "gradient=cancelling")),
    ), "parameter", Row("finite", "all gradients are finite"), one_in=12),
    Topic("size", (
        Row("many parameters",
            occurs=lambda scenario: len(scenario.parameters) >= MANY["parameters"]),
        Row("many elements", part="parameter",
            occurs=lambda _, spec: math.prod(spec.global_shape) >= MANY["elements"]),
        Row("many steps", occurs=lambda scenario: scenario.num_steps >= MANY["steps"],
            gone_with=f"steps={MAX_STEPS}", never_with=never("a number is few or many", "steps")),
        Row("many micro-batches",
            occurs=lambda scenario: max(scenario.accumulations) >= MANY["micro-batches"],
            gone_with=f"accumulations={MAX_ACCUMULATIONS}"),
        Row("huge parameter", is_alone=True, part="parameter", gone_with="size=many elements",
            occurs=lambda _, spec: math.prod(spec.global_shape) >= HUGE),
        Row("vast parameter", is_alone=True, gone_with="size=huge parameter",
            occurs=_reduces_vast_one),
        Row("many buckets", is_alone=True, gone_with="size=many parameters",
            occurs=_has_many_buckets,
            never_with=never("many buckets take many caps", "buckets=cap does not split")),
        Row("many ranks", is_alone=True, part="mesh", gone_with="ranks=4",
            occurs=lambda mesh: mesh.num_ranks >= MANY["ranks"],
            never_with=never("a number is few or many", *(f"ranks={n}" for n in (1, 2, 3, 4)))),
        Row("unequal axes", is_alone=True, gone_with="size=many ranks",
            occurs=_reduces_over_unequal_axes,
            never_with=never("two and three ranks an axis are six", "mesh=1 axis",
                *(f"ranks={n}" for n in (1, 2, 3, 4)))),
        Row("long training", is_alone=True, since=2, gone_with="size=many steps",
            occurs=lambda scenario: scenario.num_steps >= MANY["long training"],
            never_with=never("a number is few or many", "steps")),
    ), one_in=12),
    Topic("placement", (
        Row("sub_mesh", "", "right", lambda _, spec: ABSENT in (spec.placements or ()),
            never_with=never("sub-meshes are found by name", "mesh=unnamed")
                | never("one axis has no axis to leave out", "mesh=1 axis")),
        Row("strided", "", "right",
            # Two axes cut one dim, and a plain mesh has no third one to reduce over.
            lambda _, spec: any(map(is_strided, spec.placements or ())),
            never_reduced=True, shows_on="trained",
            never_with=never("it takes two axes to cut one dim", "mesh=1 axis")),
        Row("partial", "", "right_or_error", lambda _, spec: PARTIAL in (spec.placements or ()),
            never_with=never("DTensor parameters are exchanged and lose their hooks, so DTensor "
                "itself reduces the Partial gradient, before the subject can refuse",
                *_EXCHANGING)),
    ), "parameter", one_in=9),
    Topic("shape", (
        Row("4 dims", "4 or 5 dims", "right", lambda _, spec: len(spec.global_shape) in {4, 5}),
        Row("empty", "", "right", shows_on="trained", occurs=lambda _, spec: 0 in spec.global_shape),
    ), "parameter", one_in=12),
    Topic("listed", (
        Row("twice", "", "right_or_error", lambda _, spec: spec.num_listed > 1),
        Row("in two groups", "", "right_or_error", lambda _, spec: spec.also_in_next_group),
    ), "parameter", one_in=12),
    Topic("memory_format", (
        Row("transposed", "dense, with the last two dims swapped in memory", fewest_dims=2),
        Row("channels_last", "4-dim or 5-dim, channels innermost in memory", fewest_dims=4,
            one_in=2, needs="shape=4 dims"),
    ), "parameter", Row("contiguous", "row-major and dense"), promise="right"),
    # `used` names the ranks and micro-batches that use a parameter; `use` names the operators
    # that they apply to the parameter. `graphs/uses.py` has the function of each word.
    Topic("used", (
        Row("never", "no rank's loss depends on it"),
        Row("never/in_first_step", "no loss of step 0 depends on it, all later ones do"),
        Row("never/in_even_steps", "no loss of steps 0, 2, ... depends on it"),
        Row("never/in_odd_steps", "no loss of steps 1, 3, ... depends on it"),
        Row("undefined", "each loss depends on it by a function whose gradient is undefined"),
        Row("not_on_odd_ranks", "losses of odd ranks do not depend on it"),
        Row("not_in_first_micro_batch", "the first micro-batch of each step does not use it",
            fewest_micro_batches=2),
        Row("not_in_last_micro_batch", "the last micro-batch of each step does not use it",
            fewest_micro_batches=2),
    ), "parameter", Row("always", "every rank's every micro-batch uses the parameter"),
        promise="right_or_error", fits_any=True),
    Topic("use", (
        Row("twice", "two products in one loss"),
        Row("added_to_another",
            "added to another parameter of its shape: autograd hands both one gradient tensor",
            never_with=never("the sum of two parameters belongs to no stream of one of them",
                "launch=parameter_streams") | never("the sum of two parameters belongs to no "
                "half of the parameters", "backward=on_threads")),
        Row("many_times", "five products in one loss"),
        Row("expanded", "`expand`: backward sums over the repetitions"),
        Row("gathered", "each element is looked up twice, as in an embedding"),
        Row("in_slices", "two views that share no element"),
        Row("unbound", "`unbind`: one node with an output for each element"),
        Row("restrided", "`as_strided`, every element twice"),
        Row("in_place_on_copy", "a copy is multiplied in place"),
        Row("in_place_on_views", "views of a copy are multiplied in place"),
        Row("in_place_result_saved", "an operator in place saves its result"),
        Row("written_after_use", "the parameter is written before backward, which needs no value"),
        Row("detached_branch", "beside it a product with `detach()`"),
        Row("no_grad_branch", "beside it a product under `no_grad`"),
        Row("inference_branch", "beside it a product under `inference_mode`"),
        Row("pruned_branch", "results that no root depends on"),
        Row("masked", "`where`: elements go one of two ways"),
        Row("saves_for_backward", "custom function: `setup_context`, `save_for_backward`"),
        Row("marks_dirty", "custom function: `mark_dirty`"),
        Row("non_differentiable", "custom function: `mark_non_differentiable`"),
        Row("unmaterialized", "custom function: `set_materialize_grads(False)`"),
        Row("needs_input_grad", "custom function: `needs_input_grad`"),
        Row("differentiable_once", "custom function: `once_differentiable`"),
        Row("none_gradient", "beside it a custom function that returns None as gradient"),
        Row("cpp_function", "C++: `saved_data`, `needs_input_grad`, `is_traceable`",
            rare="takes a C++ compiler, and half a minute once"),
        Row("cpp_kernel", "C++: a kernel under `AutoDispatchBelowADInplaceOrView`",
            rare="takes a C++ compiler, and half a minute once"),
        Row("tensor_hooks", "hooks on an intermediate clip and replace its gradient"),
        Row("node_hooks", "a pre-hook and a post-hook of a node replace gradients"),
        Row("retained_gradient", "`retain_grad()` on an intermediate"),
        Row("checkpointed", "two activation checkpoints, not reentrant"),
        Row("checkpointed_reentrant", "two reentrant activation checkpoints",
            never_with=_NAMES_NO_INPUTS | _NAMES_NO_INPUTS_BESIDE),
        Row("checkpointed_and_not", "a reentrant activation checkpoint, and a product without one",
            never_with=_NAMES_NO_INPUTS),
        Row("checkpointed_nested", "a reentrant activation checkpoint inside of another",
            never_with=_NAMES_NO_INPUTS | _NAMES_NO_INPUTS_BESIDE),
        Row("offloaded", "saved tensors are kept on the host (`save_on_cpu`)"),
        Row("compressed", "saved tensors are kept as bytes (`saved_tensors_hooks`)"),
        Row("double_backward", "the loss contains a gradient (`create_graph`)"),
        Row("jacobian_rows", "the loss contains a Jacobian (`is_grads_batched`)"),
        Row("hessian", "the loss contains a Hessian"),
        Row("autocast", "a matrix product under autocast to bfloat16"),
        Row("compiled_region", "the product is compiled (`torch.compile`)",
            rare="takes seconds in every process"),
        Row("fused_accumulation", "custom function: its backward adds to `.grad`, where there is "
            "one, and returns zeros", never_with=_WRITES_GRAD),
        Row("fused_main_grad", "custom function: its backward adds to `main_grad`, where the "
            "parameter has that, sets `grad_added_to_main_grad` and returns stale numbers",
            never_with=_WRITES_GRAD),
        Row("saves_for_backward/into_one_storage", "custom functions write the gradients of all "
            "such parameters into one tensor: each gradient is a part of its storage"),
    ), "parameter", Row(PLAIN, "one product in the loss"), promise="right", fits_any=True),
    # `graphs/backwards.py` has the function of each word.
    Topic("backward", (
        BackwardRow("inputs", "`backward(inputs=...)` with all parameters"),
        BackwardRow("inputs_in_turn",
            "`backward(inputs=...)` for each parameter, over one kept graph"),
        BackwardRow("several_roots", "each term is a separate root"),
        BackwardRow("grad_tensors", "each term is halved, and its root's gradient is 2"),
        BackwardRow("grad_beside", "`torch.autograd.grad` first, with a result that is not used"),
        BackwardRow("twice_over_one_graph",
            "half of the gradient each by two backwards, both agreed on", halves=True),
        BackwardRow("create_graph", "`backward(create_graph=True)`"),
        BackwardRow("hooks_of_others", "the user's hooks on parameters halve a doubled gradient",
            never_with=_LOSES_HOOKS),
        BackwardRow("hook_writes_grad",
            "a hook of the user, registered after `bind()`, adds each gradient to `.grad` by "
            "itself", never_with=_LOSES_HOOKS),
        BackwardRow("reentrant",
            "half of the gradient inside of another backward, and half in that one", halves=True),
        BackwardRow("deep_reentrant",
            "`reentrant`, inside of more backwards than the engine nests on a thread",
            "right_or_error",
            rare="callbacks run on threads of the engine, outside of `sim`'s ranks", halves=True,
            never_with=_OTHER_THREAD),
        BackwardRow("on_threads", "one half of the parameters after the other, each on a thread",
            never_with=_OTHER_THREAD),
        BackwardRow("anomaly", "under `set_detect_anomaly(True)`"),
        BackwardRow("loss_scaling", "`GradScaler` scales the loss; hooks undo it"),
        BackwardRow("failed_in_function", "a custom backward raises at first; then a good backward"),
        BackwardRow("failed_in_tensor_hook", "a tensor's hook raises at first; then a good backward"),
        BackwardRow("failed_in_node_hook", "a node's hook raises at first; then a good backward"),
        BackwardRow("failed_in_reentrant_backward",
            "a nested backward raises first; then a good backward"),
        BackwardRow("failed_in_place", "an illegal write in place is refused; then a good backward"),
        BackwardRow("failed_over_freed_graph", "a freed graph is refused; then a good backward"),
        BackwardRow("split", "input gradients first, weight gradients later"),
        BackwardRow("compiled_autograd", "by compiled autograd", "right_or_error",
            rare="takes seconds in every process"),
        BackwardRow("split_by_hand", "input gradients first; weight gradients come from "
            "`torch.autograd.grad`, are added to `.grad`, and `mark_ready()` is called if there is one",
            never_with=never("DTensor reduces a Partial gradient when it is added",
                "placement=partial")),
        BackwardRow("hook_reads_grad",
            "a hook of the user, registered after `bind()`, reads each gradient on the host",
            never_with=_LOSES_HOOKS, since=2),
    ), plain=BackwardRow(PLAIN, "`loss.backward()`"), promise="right", fits_any=True, one_in=2),
    Topic("event", (
        EventRow("wait_twice", "`wait()` is called again before gradients are read", "right", waits=2),
        EventRow("zero_before_wait",
            "`zero_grad()` is called without `wait()`: the step is thrown away", waits=0),
        EventRow("zero_before_wait/no_backward",
            "`zero_grad()` alone, as before the first backward: no backward, no `wait()`",
            has_backward=False, waits=0),
        EventRow("set_to_none", "the caller sets every `.grad` to None after `zero_grad()`", lasts=1,
            drops_every=1),
        EventRow("set_to_none/no_backward",
            "`zero_grad()` alone, then the caller sets every `.grad` to None", has_backward=False,
            waits=0, drops_every=1),
        EventRow("set_to_none/replaced",
            "the caller writes `p.grad = p.grad / 16` between `wait()` and `zero_grad()`",
            factor=1 / 16),
        EventRow("set_to_none/replaced_while_accumulating",
            "the caller sets every `.grad` to its copy after each micro-batch but the last",
            factor=1),
        EventRow("set_every_other_to_none",
            "the caller sets every other `.grad` to None after `zero_grad()`", lasts=1,
            drops_every=2),
        EventRow("empty_step", "no backward at all, then `wait()` and `zero_grad()`",
            has_backward=False),
        EventRow("extra_backward", "one backward more than agreed, before `wait()`", more_backwards=1),
        EventRow("missing_backward", "one backward fewer than agreed, then `wait()`",
            more_backwards=-1, fewest_micro_batches=2),
        EventRow("tail",
            "one backward fewer than agreed, then `flush()` if there is one, and `wait()`",
            more_backwards=-1, fewest_micro_batches=2),
        EventRow("rebind", "`unbind()` and `bind()` follow the step", "right", rebinds=True),
        EventRow("rebind_announced",
            "the next number of micro-batches is announced, then `unbind()` and `bind()` follow",
            "right", rebinds=True),
        EventRow("rebind_announced/unbound",
            "`unbind()`, then the next number of micro-batches is announced, then `bind()`",
            rebinds=True),
        EventRow("unbind_early", "`unbind()` without `wait()`, then `bind()`: the step is thrown away",
            waits=0, rebinds=True),
        EventRow("remade", "`unbind()` follows the step, and another synchronizer is made and bound",
            "right", rebinds=True),
        EventRow("raise_in_backward",
            "the training program raises in the middle of the last backward, on every rank; "
            "`reset()` if there is one, else `zero_grad()`, throws the step away",
            is_thrown_away=True,
            never_with=never("backward never reaches the term that raises", *_NAMING_INPUTS)),
        EventRow("freeze", "every other trainable parameter is frozen, from this step on", lasts=math.inf,
            change="freeze"),
        EventRow("unfreeze",
            "every other trainable parameter is frozen at `bind()`, and trained from this step on",
            lasts=math.inf, change="freeze"),
        EventRow("unfreeze_in_turn",
            "every other trainable parameter is frozen at `bind()`; from this step on, one more "
            "of them is trained in each step", lasts=math.inf, change="freeze"),
        EventRow("cast", "`module.double()` is called before the step", lasts=math.inf,
            change="cast"),
        EventRow("cast_before_zero", "`module.double()` is called between `wait()` and `zero_grad()`",
            lasts=math.inf, change="cast", is_before_zero=True),
        EventRow("move", "parameters and gradients move, as `module.to(device)` does, before the step",
            lasts=math.inf, change="move"),
        EventRow(FAILING,
            "from this step on, each collective between ranks fails: its wait raises "
            "`DistBackendError`, and nothing is written", lasts=math.inf),
        EventRow("set_every_other_to_none/from_second",
            "the same from the second one on", lasts=1, drops_every=2, first=1),
        EventRow("set_every_other_to_none/replaced",
            "the caller writes `p.grad = p.grad / 16` for every other parameter, from the second "
            "one on, between `wait()` and `zero_grad()`", factor=1 / 16, every=2, first=1),
        EventRow("set_every_other_to_none/replaced_while_accumulating",
            "the caller sets every other `.grad`, from the second one on, to its copy after each "
            "micro-batch but the last", factor=1, every=2, first=1),
        EventRow("remade/grown",
            "the same; every other trainable parameter is born then: no loss of this step or an "
            "earlier one uses it, and the new synchronizer alone is told of it", rebinds=True),
        EventRow("missing_backward/on_odd_ranks",
            "one backward fewer than agreed on odd ranks, and as many as agreed on the others",
            even_ranks_alone=True, fewest_micro_batches=2),
        EventRow("failing_collectives/first",
            "the first collective of each communicator fails alone, from this step on",
            lasts=math.inf),
    ), plain=EventRow(PLAIN, "as many backwards as agreed, `wait()`, `zero_grad()`"),
        promise="right_or_error", fits_any=True),
    Topic("launch", (
        Row("step_on_side_stream", "bound on the default stream, steps run on another one"),
        Row("step_on_new_stream", "bound on the default stream, each step runs on another one"),
        Row("bind_on_side_stream",
            "made, bound and unbound on another stream, steps run on the default one"),
        Row("parameter_streams", "each parameter's forward runs on its own stream",
            fewest_parameters=2),
    ), plain=Row("current_stream", "everything on the stream that is current"), promise="right", fits_any=True),
    Topic("readiness", (
        Row("by_rank", "each rank starts with another parameter, and goes on in one order",
            fewest_parameters=2),
        Row("by_rank/by_step",
            "each step starts with another parameter on all ranks, and goes on in one order"),
    ), plain=Row("same", "gradients become ready in one order on all ranks"), promise="right", fits_any=True),
    Topic("synchronizers", (
        Row("two", "two synchronizers have every other parameter each, and take turns",
            fewest_parameters=2),
    ), plain=Row("one", "one synchronizer has all parameters"), promise="right", fits_any=True),
    Topic("module", (
        Row("mlp", "two linear layers", never_with=_MODULE | _OWN_SHAPES | _NOT_SPREAD),
        Row("conv", "a convolutional net", needs="shape=4 dims",
            never_with=_MODULE | _NOT_EMPTY | _NOT_SPREAD),
        Row("conv_channels_last", "a convolutional net on images in channels-last format",
            needs="shape=4 dims", never_with=_MODULE | _NOT_EMPTY | _NOT_SPREAD),
        Row("moe", "a mixture of experts, which the last mesh axis spreads, and their router",
            never_with=_MODULE | _OWN_SHAPES),
        Row("gpt", "one transformer block between tied embeddings",
            never_with=_MODULE | _OWN_SHAPES | _NOT_SPREAD),
    ), plain=Row(PLAIN, "no module: a sum of products, with gradients that are exact"),
        promise="right", one_in=20),
    Topic("evaluation", (
        Row("before_steps", "before each step, a forward without backward, under `no_grad` and "
            "in eval mode"),
    ), plain=Row("none", "each forward has a backward"), one_in=12),
    Topic("replicas", (
        Row("unequal", "the replicas of each parameter have different values on each rank at `bind()`: "
            "the synchronizer makes all of them equal, or leaves all as they are"),
    ), plain=Row("equal", "the replicas of a parameter have equal values at `bind()`"),
        promise="right"),
    Topic("update", (
        Row("in_backward", "in the last backward of a step, a hook of the user, registered after "
            "`bind()`, updates each parameter with its gradient, which has been reduced by then, "
            "and sets `.grad` to None",
            never_with=never("other words end a step, or run its backward, in their own way",
                "backward", "event", "module", "synchronizers", "replicas")
            | never("DTensor reduces a Partial gradient when it is read", "placement=partial")),
    ), plain=Row("after_wait", "an optimizer updates the parameters after `wait()`"),
        promise="right"),
    Topic("on_mesh", (
        Row(TRANSPOSED, "on another mesh over the same ranks, with the same axes in the reverse order",
            never_with=never("one axis has one order", "mesh=1 axis") | _ONE_MESH, since=2),
        Row(RESHAPED, "on another mesh over the same ranks: one axis of all of them, or two axes "
            "where the scenario's mesh has one", never_with=_ONE_MESH, since=2),
    ), "parameter", Row(OWN_MESH, "on the mesh of the scenario"), promise="right", one_in=12),
)
# fmt: on

TABLE: Final[Mapping[str, Topic]] = {topic.name: topic for topic in TOPICS}
# The rows of each topic with a field of scenarios, by word. The plain one comes first.
WORDS: Final[Mapping[str, Mapping[str, Row]]] = {
    topic.name: {row.value: row for row in (topic.plain, *topic.rows)}
    for topic in TOPICS
    if topic.plain is not None
}
# Plain words and variants are no features.
FEATURES: Final[Mapping[Feature, Row]] = {
    Feature(topic.name, row.value): row
    for topic in TOPICS
    for row in topic.rows
    if base_word(row.value) == row.value
}
# The features beyond plain training steps, with the promise that `features` demands.
OPTIONAL: Final[Mapping[Feature, Promise]] = {
    feature: promise
    for feature, row in FEATURES.items()
    if (promise := row.promise or TABLE[feature.topic].promise) is not None
}
# `features` of a contract that asks for all features.
ALL_OPTIONAL_TOPICS: Final = frozenset(feature.topic for feature in OPTIONAL)
EVENTS: Final = {
    word: row for word, row in WORDS["event"].items() if isinstance(row, EventRow)
}
BACKWARDS: Final = {
    word: row for word, row in WORDS["backward"].items() if isinstance(row, BackwardRow)
}
# Layers that contracts of this process name: the meaning of each, by word.
OWN_LAYERS: Final[dict[str, str]] = {}


def is_plain(feature: Feature) -> bool:
    """Tell whether a feature occurs in plain training steps. Each number of ranks does."""
    return feature.topic == "ranks" or (feature in FEATURES and feature not in OPTIONAL)


def meaning(topic: str, word: str) -> str:
    """Return the meaning of a word of a topic."""
    if topic == "module" and word not in WORDS[topic]:
        return OWN_LAYERS.get(word, "of your own")
    return WORDS[topic][word].meaning


def _named(name: str) -> list[Feature]:
    """List the features that a name stands for: one, or all of a topic."""
    return [each for each in FEATURES if each.topic == name] or [Feature.of(name)]


# Pairs of features that no drawn scenario combines, each with its reason.
NEVER_TOGETHER: Final[Mapping[frozenset[Feature], str]] = {
    frozenset((feature, other)): reason
    for feature, row in FEATURES.items()
    for name, reason in row.never_with.items()
    for other in _named(name)
}

# The pairs of `NEVER_TOGETHER`, by each of their features.
NEVER_WITH: Final[Mapping[Feature, frozenset[Feature]]] = {
    feature: frozenset().union(*(pair for pair in NEVER_TOGETHER if feature in pair))
    - {feature}
    for feature in frozenset().union(*NEVER_TOGETHER)
}
