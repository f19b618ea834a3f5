"""A window that ends early never becomes complete, and its rest is not launched.

Reported in horovod/horovod#546.
"""

from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.entry import reported


@reported(
    "horovod/horovod#546",
    trigger="2 ranks, a window that ends early",
    violates="gradient_equals_reference",
    cause="not_reduced",
    uses_streams=True,
)
class LeavesTail(Careful):
    """A window that ends early never becomes complete, and its rest is not launched."""

    features = frozenset({"event=tail"})

    @override
    def launch_rest(self) -> None:
        pass
