"""Where mistakes are put: what makes gradients right, and the tests nearest to it."""

# Files of the synchronizer, and what of tests/synchronizer is tried first for each.
# Whatever survives those is tried with all others.
TARGETS: dict[str, tuple[str, ...]] = {
    "attachment": ("lifecycle", "rebuild"),
    "autograd_hooks": ("accumulation", "lifecycle"),
    "backward": ("backward", "reentrant", "accumulation"),
    "bucket": ("streams", "accumulation", "memory", "set_to_none"),
    "bucket_reduction": ("wire", "streams", "reduction"),
    "gradient_view": ("set_to_none", "accumulation", "partial_gradients"),
    "grouping": ("grouping", "rebuild"),
    "launch_order": ("reduction", "windows"),
    "ownership": ("reduce_scatter",),
    "partial_gradient": ("partial_gradients",),
    "per_axis": ("per_axis",),
    "process_groups": ("axis_reductions", "reduction", "lifecycle"),
    "readiness": ("readiness", "rebuild"),
    "reduction": ("axis_reductions", "grouping"),
    "scope": ("axis_reductions", "grouping"),
    "sequence": ("accumulation", "windows", "lifecycle", "rebuild"),
    "streams": ("streams",),
    "synchronizer": ("lifecycle", "windows", "unused"),
    "transport": ("reduce_scatter", "streams", "per_axis"),
    "wire": ("wire", "scaling"),
}

# What only tells, or is no part of a step: messages, figures, and memory lent elsewhere.
LEFT_OUT_FUNCTIONS = frozenset(
    {
        "__repr__", "__str__", "_axis_names", "_kind", "_message", "_refuse", "check",
        "explain", "fail", "has_started", "is_kept_none", "norm_runs", "offload",
        "onload", "refuse_disagreement", "refuse_failed_step", "refuse_open_backward",
        "refuse_unknown_axes", "timings", "unfinished", "unused", "version",
    }
)  # fmt: skip
LEFT_OUT_NAMES = frozenset(
    {
        "_kept_timings", "_offloaded", "_state_before_offload", "_watch", "finite",
        "is_offloaded", "missing", "stopwatch",
    }
)  # fmt: skip
