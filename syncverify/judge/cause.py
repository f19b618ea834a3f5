"""The cause of a wrong gradient, as the judge tells it."""

from __future__ import annotations

from dataclasses import dataclass

from syncverify.trace.source_lines import Origin

# Causes that tell the place or the count of an error, but not its reason. Another scenario,
# often a smaller one, may show a better cause of the same defect.
VAGUE_CAUSES = frozenset({"unexplained", "miscounted", "partly_wrong", "out_of_bound"})

# Causes that the value of a gradient tells. Several mistakes may lead to one value; where the
# trace of the run leaves only one, that one is certain.
VALUE_CAUSES = frozenset(
    {
        "contribution_doubled",
        "foreign_contribution",
        "micro_batch_missing",
        "misplaced",
        "never_written",
        "not_finite",
        "rank_contribution_missing",
        "reduced_early",
        "result_dropped",
        "rounded",
        "scaled",
        "stale",
    }
)


def is_exception(cause: str) -> bool:
    """Tell whether a cause is an exception of the subject: `raised_` and its class."""
    return cause.startswith("raised_")


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a wrong gradient.

    Attributes:
        kind: Short name, stable across scenarios.
        text: A sentence that names ranks, micro-batches, steps, parameters.
        is_certain: Whether the run leaves no other cause, if the trace tells this one.
        lines: Lines that the text names.
    """

    kind: str
    text: str
    is_certain: bool = True
    lines: tuple[Origin, ...] = ()
