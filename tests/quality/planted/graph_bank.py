"""The defects of graphs, each with the features of the autograd engine that show it."""

from collections.abc import Iterable
from typing import Any

from syncverify.bugbank.autograd import (
    CountsArrivals,
    CountsCallsOfNestedBackwards,
    HoldsFirstGradient,
)
from tests.quality.planted import (
    backward_watches,
    call_watches,
    graph_walks,
    graphs,
    recomputing,
)
from tests.quality.planted.planted import LIVE, VALUE, Planted, plant


def of(
    subject: type[Any],
    *shown_by: str,
    cause: str = "not_reduced",
    violates: str = VALUE,
    beside: Iterable[str] = (),
) -> Planted:
    identity = violates, cause
    return plant(subject, identity, *shown_by, beside=frozenset(beside))


def raised(
    subject: type[Any],
    error: type[Exception],
    *shown_by: str,
    beside: Iterable[str] = (),
) -> Planted:
    cause = f"raised_{error.__name__}"
    return of(subject, *shown_by, cause=cause, violates=LIVE, beside=beside)


# A reduction in a hook comes before later hooks of the user.
EARLY = "backward=hook_writes_grad"
# No hook sees a gradient that the training program adds by hand.
BY_HAND = "backward=split_by_hand"
# The gradient that arrives is zero.
FUSED = "use=fused_accumulation"
REENTRANT = (
    "use=checkpointed_reentrant",
    "use=checkpointed_and_not",
    "use=checkpointed_nested",
    "backward=reentrant",
    "backward=deep_reentrant",
)
FAILED_IN_CODE = (
    "backward=failed_in_function",
    "backward=failed_in_tensor_hook",
    "backward=failed_in_node_hook",
    "backward=failed_in_reentrant_backward",
)
# Calls and gradients look the same in these features: an error that is not torch's.
GROUPS = (frozenset(FAILED_IN_CODE),)
# Features without a planted defect, and the reason.
NOT_SHOWN = {
    "backward=compiled_autograd": "It is on or off for a whole process, and so is not "
    "simulated; the engine matrix plays it on gloo."
}

OF_HOOKS = [
    of(CountsCallsOfNestedBackwards, *REENTRANT, cause="reduced_early", beside=[EARLY, BY_HAND]),
    of(
        CountsArrivals, *REENTRANT, "backward=grad_beside", cause="reduced_early",
        beside=[EARLY, BY_HAND],
    ),
    # The 61st nested backward runs on another thread, and its gradients are not counted.
    of(graphs.CountsPerThread, "backward=on_threads", beside=[*REENTRANT[:-1], EARLY, BY_HAND]),
    of(
        graphs.ReducesInItsHook, EARLY, cause="reduced_early", beside=[BY_HAND],
    ),
    # The common gradient is small beside the gradient of the other parameter.
    of(
        graphs.ReducesWhatTensorHooksGet, "use=added_to_another", cause="unexplained",
        beside=[FUSED],
    ),
    of(
        graphs.TakesArrivals, "backward=hooks_of_others", "backward=grad_beside",
        cause="scaled", beside=[FUSED],
    ),
    of(HoldsFirstGradient, "backward=create_graph", cause="micro_batch_missing",
       beside=[BY_HAND]),
    of(
        graphs.CountsEnds, *REENTRANT, "backward=inputs_in_turn", cause="reduced_early",
        beside=["backward=on_threads", BY_HAND],
    ),
]  # fmt: skip
OF_WALKS = [
    of(graph_walks.TakesExpansionForItsProbe, "use=expanded"),
    of(graph_walks.ReducesRowsOfLookups, "use=gathered", cause="scaled"),
    of(graph_walks.ReducesFirstSlice, "use=in_slices", cause="partly_wrong"),
    of(graph_walks.ForgetsLastOfGroup, "use=unbound", cause="partly_wrong"),
    of(graph_walks.ReplaysViews, "use=restrided", cause="reduced_twice"),
    raised(
        graph_walks.TakesNamespaceForAccumulator, AttributeError,
        "use=in_place_on_views", "use=cpp_function", "use=cpp_kernel",
    ),
    of(graph_walks.LearnsOneMask, "use=masked", cause="partly_wrong"),
    of(
        graph_walks.ReducesForSecondLoss, "use=twice", cause="reduced_twice",
        beside=["use=added_to_another"],
    ),
    of(graph_walks.HoldsFourUses, "use=many_times"),
    raised(
        graph_walks.NamesInputsOfOldFunctions, ValueError, "use=saves_for_backward"
    ),
    of(graph_walks.TrustsFunctionsThatKeepTheWeight, "use=needs_input_grad"),
    raised(graph_walks.MeasuresWhatIsBrought, AttributeError, "use=none_gradient"),
    raised(graph_walks.MeasuresCurvature, RuntimeError, "use=differentiable_once",
        "use=compiled_region", beside=[FUSED],
    ),
    of(graph_walks.TakesPackedForOffloaded, "use=offloaded"),
    of(graph_walks.TakesPackedForQuantized, "use=compressed"),
    of(graph_walks.TakesInputsOfCopies, "use=node_hooks", cause="scaled"),
    of(
        graph_walks.CountsWhatIsInTheGraph, "use=checkpointed_and_not",
        cause="unexplained",
    ),
    of(
        graph_walks.CountsCallsWithoutCheckpoints, "backward=reentrant",
        "backward=deep_reentrant", cause="reduced_early", beside=[EARLY],
    ),
]  # fmt: skip
OF_FORWARDS = [
    of(call_watches.TakesDetachForFreezing, "use=detached_branch"),
    of(call_watches.TakesAddedValueForFrozen, "use=no_grad_branch"),
    raised(call_watches.AllocatesAtFirstUse, RuntimeError, "use=inference_branch"),
    of(call_watches.ExpectsGradientOfEachUse, "use=pruned_branch"),
    of(call_watches.TakesWritesForUpdates, "use=in_place_on_copy"),
    of(call_watches.TakesUntrackedWritesForUpdates, "use=marks_dirty"),
    raised(call_watches.RoundsActivations, RuntimeError, "use=in_place_result_saved"),
    of(call_watches.TakesWritesForSteps, "use=written_after_use"),
    of(call_watches.LeavesOutUnusedResults, "use=unmaterialized"),
    of(call_watches.TakesValuesForFrozen, "use=non_differentiable"),
    of(call_watches.HooksCopiesFirst, "use=tensor_hooks", cause="scaled"),
    of(
        call_watches.TrainsRetainedCopies, "use=retained_gradient",
        cause="micro_batch_missing",
    ),
    of(call_watches.ReducesInDtypeOfAutocast, "use=autocast", cause="unexplained"),
    of(call_watches.TakesSecondDerivativesForInnerSteps, "use=hessian"),
    raised(backward_watches.ReadsWhatArrives, RuntimeError, "use=jacobian_rows"),
    of(
        backward_watches.TakesDerivativesOfForward, "use=double_backward",
        cause="unexplained", beside=["use=jacobian_rows"],
    ),
]  # fmt: skip
OF_BACKWARDS = [
    of(recomputing.ExpectsGradientOfRecomputed, "use=checkpointed"),
    of(
        recomputing.DoneWhenRecomputedCame, "use=checkpointed_reentrant",
        cause="unexplained",
    ),
    of(recomputing.TakesInnerForwardForEvaluation, "use=checkpointed_nested"),
    of(backward_watches.HooksFirstInput, "backward=inputs"),
    of(backward_watches.DropsInputs, "backward=inputs_in_turn", cause="scaled"),
    # The subject has only hooks of `register_hook`, and sends nothing: they are the likely cause.
    of(backward_watches.ArmedByCalls, "backward=several_roots", cause="hook_too_early"),
    of(backward_watches.UndoesDivision, "backward=grad_tensors", cause="scaled"),
    of(backward_watches.TakesSplitForPipeline, "backward=split", beside=[BY_HAND]),
    of(backward_watches.CountsForwards, "backward=twice_over_one_graph"),
    of(backward_watches.UndoesScaling, "backward=loss_scaling", cause="scaled"),
    of(backward_watches.ReducesEagerlyInDebugMode, "backward=anomaly", cause="unexplained"),
    of(backward_watches.KeepsListPerThread, "backward=on_threads", beside=[BY_HAND]),
    of(backward_watches.ExpectsWhatArrived, "backward=grad_beside", beside=[BY_HAND]),
    of(backward_watches.TakesLastArrival, "backward=hooks_of_others", cause="scaled",
       beside=[FUSED]),
]  # fmt: skip
OF_FAILURES = [
    of(backward_watches.TidiesUpAfterTheEngineOnly, *FAILED_IN_CODE),
    of(
        backward_watches.StartsOverAfterFreedGraph, "backward=failed_over_freed_graph",
        cause="micro_batch_missing",
    ),
    of(
        backward_watches.StartsOverAfterWrite, "backward=failed_in_place",
        cause="micro_batch_missing",
    ),
]  # fmt: skip
OF_OWN_ACCUMULATION = [
    of(graphs.ReducesWhatHooksSaw, "backward=split_by_hand"),
    of(
        graphs.ClearsAtFirstGradient, "use=fused_accumulation",
        cause="micro_batch_missing",
    ),
    of(graphs.AddsPlaceholders, "use=fused_main_grad", cause="placeholder_added"),
    of(
        graphs.RefusesLateWrites, "backward=hook_reads_grad", cause="touched_in_flight",
        violates="bucket_is_exclusive_while_reducing", beside=[*REENTRANT, EARLY, BY_HAND],
    ),
]  # fmt: skip
GRAPH_DEFECTS = [
    *OF_HOOKS,
    *OF_WALKS,
    *OF_FORWARDS,
    *OF_BACKWARDS,
    *OF_FAILURES,
    *OF_OWN_ACCUMULATION,
]
