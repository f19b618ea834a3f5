"""Reported in horovod/horovod#546."""

from __future__ import annotations

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.contracts import only
from syncverify.bugbank.entry import Entry


class FlushesAndForgets(Careful):
    """`flush()` launches what `wait()` launches again."""

    outside = only("event=tail")

    def flush(self) -> None:
        """Reduce what came."""
        self.launch_rest()
        self.finish_launched()
        self.num_launched = 0

    def finish_launched(self) -> None:
        """Wait for what was launched."""
        for bucket in self.buckets:
            self.finish(bucket)


ENTRY = Entry(
    subject=FlushesAndForgets,
    twin=Careful,
    source="horovod/horovod#546",
    trigger="2 ranks, a window that ends early",
    silent=True,
    property="gradient_equals_reference",
    cause="scaled",
    uses_streams=True,
)
