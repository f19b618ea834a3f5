"""unbind() forgets its hooks without removing them.

Reported in pytorch/pytorch#63211.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#63211",
    trigger="any program",
    violates="unbind_restores_parameters",
    cause="hook_left",
)
class KeepsHooks(ViewBuckets):
    """unbind() forgets its hooks without removing them."""

    @override
    def unbind(self) -> None:
        self.hooks.clear()
        super().unbind()
