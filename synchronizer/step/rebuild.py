"""The rebuild: buckets are cut anew once, in the order in which gradients became ready.

Note [Effects of a rebuild]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
Buckets are cut anew at the end of `zero_grad()`, when every gradient is zero or None, and
no reduction is in flight. So no accumulation is lost, also none of `no_sync()`: those of
the step were reduced and used before, and those of the next step have not begun.

    kept        hooks, streams, process groups, and the learned number of gradients of
                each parameter
    replaced    buffers. The old ones are freed before the new ones are allocated, so
                the peak of memory does not grow, unless the user keeps an older `.grad`

Every `.grad` is another tensor afterwards. An older `.grad` that the user kept keeps its
old buffer alive. It holds zeros, or its last values after `set_to_none=True`, and no
backward adds to it any more. So a user keeps parameters and reads `.grad` anew, or turns
`rebuild` off, which leaves `.grad` the same tensor from `bind()` to `unbind()`.
"""

from collections.abc import Sequence

from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.plan.grouping import BucketPlan, Candidate, cut_buckets
from syncverify.synchronizer.plan.readiness import ReadinessOrder
from syncverify.synchronizer.ranks.notes import Notes
from syncverify.synchronizer.step.sequence import BucketSequence


class Rebuild:
    """Plans buckets anew after the first complete step; the arguments are those of a plan."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        notes: Notes | None,
        *,
        bucket_cap_bytes: float,
        config: SynchronizerConfig,
    ) -> None:
        self._candidates, self._order = candidates, ReadinessOrder(candidates, notes)
        self._bucket_cap_bytes, self._config = bucket_cap_bytes, config
        self.is_due = False  # whether a complete step has shown the order

    def note_complete(self, sequence: BucketSequence) -> None:
        """Learn the order of gradients in the first complete step, before `wait()`."""
        observed = sequence.stop_learning()
        if observed is not None:
            self._order.publish(observed)
            self.is_due = True

    def plan(self, sequence: BucketSequence) -> tuple[BucketPlan, ...] | None:
        """Return new plans in launch order, where they differ from the old ones.

        Raises `PlanMismatchError`, before anything has changed, where the rank whose order
        the others take over has published nothing in time.
        """
        plans = cut_buckets(
            self._candidates,
            bucket_cap_bytes=self._bucket_cap_bytes,
            config=self._config,
            positions=self._order.positions(),
        )
        return None if _members(plans) == _members(sequence.plans) else plans


def _members(plans: Sequence[BucketPlan]) -> list[list[int]]:
    return [[id(member.parameter) for member in plan.members] for plan in plans]
