"""Places for mistakes: the modules that make gradients right, and their nearest tests."""

# Modules of the synchronizer by path, and the files of tests/synchronizer to try first.
# Mutants that survive these files are tried with all other files.
TARGETS: dict[str, tuple[str, ...]] = {
    "backward/autograd_hooks": ("accumulation", "lifecycle", "rebuild"),
    "backward/backward_watch": ("backward_watch", "reentrant", "accumulation"),
    "bucket/bucket": ("streams", "accumulation", "memory", "set_to_none"),
    "transport/bucket_reduction": ("wire_format", "streams", "reduction"),
    "bucket/gradient_view": ("set_to_none", "accumulation", "partial_gradients"),
    "plan/grouping": ("grouping", "rebuild"),
    "step/given_up": ("reduction", "windows"),
    "step/launch_order": ("reduction", "windows", "writes_in_flight"),
    "plan/ownership": ("reduce_scatter",),
    "backward/partial_gradients": ("partial_gradients",),
    "ranks/process_groups": ("axis_reductions", "reduction", "lifecycle"),
    "plan/readiness": ("readiness", "rebuild"),
    "plan/reduction": ("axis_reductions", "grouping"),
    "ranks/scope": ("axis_reductions", "grouping"),
    "step/sequence": ("accumulation", "windows", "lifecycle", "rebuild"),
    "transport/streams": ("streams",),
    "synchronizer": ("lifecycle", "windows", "unused"),
    "transport/collectives": ("reduce_scatter", "streams"),
    "plan/wire_format": ("wire_format", "scaling"),
}

# Code that only reports, or is no part of a step: messages and figures.
LEFT_OUT_FUNCTIONS = frozenset(
    {
        "__repr__", "__str__", "_axis_names", "_kind", "_refuse",
        "explain", "fail", "has_started", "is_kept_none", "norm_runs",
        "refuse_failed_step", "refuse_open_backward",
        "refuse_unknown_axes", "logging_data", "unfinished", "unused", "version",
    }
)  # fmt: skip
LEFT_OUT_NAMES = frozenset({"_watch", "finite", "times"})
