"""Buckets are cut anew once, in the order in which gradients became ready.

Note [What a rebuild keeps]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
Buckets are cut anew at the end of `zero_grad()`, when every gradient is zero and nothing
is in flight. So no accumulation is lost, be it one of `no_sync()`: those of the step are
reduced and dropped, and those of the next have not begun. Hooks, streams, process groups
and what was learned of each parameter stay. Buffers do not, and the old ones are given
back before the new ones are allocated, so the peak is what it was.

Every `.grad` is another tensor afterwards. One that somebody kept from before holds
zeros, as after any `zero_grad()`, and is memory of its own: no backward adds to it any
more. So keep parameters, or turn `rebuild` off where `.grad` has to be the same tensor
from `bind()` to `unbind()`.
"""

from collections.abc import Sequence

from .config import SynchronizerConfig
from .grouping import BucketPlan, Candidate, cut_buckets
from .readiness import ReadinessOrder
from .rendezvous import Rendezvous
from .sequence import BucketSequence


class Rebuild:
    """Watches for the first step that is complete, and plans anew after it.

    Args:
        candidates: What was planned, in registration order.
        rendezvous: Where to meet ranks that share buckets; None where there are none.
        bucket_cap_bytes: As for the first plan.
        config: As for the first plan.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        rendezvous: Rendezvous | None,
        *,
        bucket_cap_bytes: float,
        config: SynchronizerConfig,
    ) -> None:
        self._candidates = candidates
        self._order = ReadinessOrder(candidates, rendezvous)
        self._bucket_cap_bytes = bucket_cap_bytes
        self._config = config
        self._is_due = False

    def note_complete(self, sequence: BucketSequence) -> None:
        """Learn from the first step that is complete.

        Args:
            sequence: About to be waited for; has all its gradients.
        """
        if sequence.is_learning:
            self._order.leave(sequence.stop_learning())
            self._is_due = True

    def plan(self, sequence: BucketSequence) -> tuple[BucketPlan, ...] | None:
        """Plan anew, once, if that would change anything.

        Args:
            sequence: Whose plans to compare with; left as it is.

        Returns:
            The new plans in launch order; None where the old ones stay.

        Raises:
            PlanMismatchError: A rank that decides has left nothing in time; nothing
                has changed.
        """
        if not self._is_due:
            return None
        plans = cut_buckets(
            self._candidates,
            bucket_cap_bytes=self._bucket_cap_bytes,
            config=self._config,
            positions=self._order.positions(),
        )
        self._is_due = False
        return None if _members(plans) == _members(sequence.plans) else plans


def _members(plans: Sequence[BucketPlan]) -> list[list[int]]:
    return [[id(member.parameter) for member in plan.members] for plan in plans]
