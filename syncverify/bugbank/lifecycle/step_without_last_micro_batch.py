"""`wait()` returns with gradients that were not reduced.

Reported in huggingface/accelerate#2125.
"""

from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.entry import reported


@reported(
    "huggingface/accelerate#2125",
    trigger="2 ranks, a step with one backward fewer than agreed",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # The backward may be missing on some ranks, and the others wait for these.
    or_cause="deadlock",
    uses_streams=True,
)
class WaitsForWhatWasLaunched(Careful):
    """`wait()` returns with gradients that were not reduced."""

    features = frozenset({"event=missing_backward"})

    @override
    def launch_rest(self) -> None:
        pass
