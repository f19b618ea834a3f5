"""Places for mistakes: the modules that make gradients right, and their nearest tests."""

# Modules of the synchronizer by path, and the files of tests/synchronizer to try first.
# Mutants that survive these files are tried with all other files.
TARGETS: dict[str, tuple[str, ...]] = {
    "backward/autograd_hooks": ("accumulation", "reentrant", "lifecycle", "rebuild"),
    "bucket/bucket": ("streams", "accumulation", "memory", "set_to_none"),
    "bucket/gradient_view": ("set_to_none", "accumulation", "partial_gradients"),
    "plan/grouping": ("grouping", "rebuild"),
    "step/given_up": ("reduction", "windows"),
    "plan/ownership": ("reduce_scatter",),
    "backward/partial_gradients": ("partial_gradients",),
    "ranks/process_groups": ("axis_reductions", "reduction", "lifecycle"),
    "plan/readiness": ("readiness", "rebuild"),
    "plan/reduction": ("axis_reductions", "grouping"),
    "ranks/scope": ("axis_reductions", "grouping"),
    "step/sequence": ("accumulation", "windows", "lifecycle", "rebuild"),
    "synchronizer": ("lifecycle", "windows", "unused"),
    "transport/reduction": ("wire_format", "streams", "reduction", "reduce_scatter"),
    "plan/wire_format": ("wire_format", "scaling"),
}

# Code that only reports, or is no part of a step: messages and figures.
LEFT_OUT_FUNCTIONS = frozenset(
    {
        "__repr__", "__str__", "_excess_error", "_kind",
        "explain", "fail", "known_count", "norm_runs",
        "_refuse_failed_step", "refuse_unsound_step",
        "refuse_unknown_axes", "logging_data", "unfinished", "unused", "_versions",
    }
)  # fmt: skip
LEFT_OUT_NAMES = frozenset({"_watch", "checks", "times"})
