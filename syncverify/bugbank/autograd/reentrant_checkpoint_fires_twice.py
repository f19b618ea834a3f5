"""A hook is taken to be called once a micro-batch; nested backwards call it again.

Reported in pytorch/pytorch#24005.
"""

from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#24005",
    trigger="2 ranks, a weight in two reentrant checkpoints",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    # No call comes where the caller adds the gradient to `.grad`.
    or_cause="not_reduced",
    twin=PlainGrads,
)
class CountsCallsOfNestedBackwards(CountsHookCalls):
    """A hook is taken to be called once a micro-batch; nested backwards call it again."""

    capabilities = PlainGrads.capabilities
