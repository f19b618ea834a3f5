"""Features of the autograd engine, and the marks of the defects that show through them."""

from collections.abc import Callable, Iterable
from typing import Any

from syncverify.subjects.bugbank.entry import Marked, marking
from tests.quality.planted.planted import LIVE, VALUE, Planted, plant

# A reduction in a hook comes before later hooks of the user.
EARLY = "backward=hook_writes_grad"
# No hook sees a gradient that the training program adds by hand.
BY_HAND = "backward=split_by_hand"
# The gradient that arrives is zero.
FUSED = "use=fused_accumulation"
REENTRANT = (
    "use=checkpointed_reentrant",
    "use=checkpointed_and_not",
    "use=checkpointed_nested",
    "backward=reentrant",
    "backward=deep_reentrant",
)
FAILED_IN_CODE = (
    "backward=failed_in_function",
    "backward=failed_in_tensor_hook",
    "backward=failed_in_node_hook",
    "backward=failed_in_reentrant_backward",
)
# Calls and gradients look the same in these features: an error that is not torch's.
GROUPS = (frozenset(FAILED_IN_CODE),)
# Features without a planted defect, and the reason.
NOT_SHOWN = {
    "backward=compiled_autograd": "It is on or off for a whole process, and so is not "
    "simulated; the engine matrix plays it on gloo."
}
MODULES = ("graphs", "graph_walks", "call_watches", "backward_watches")


def of(
    subject: type[Any],
    *shown_by: str,
    cause: str = "not_reduced",
    violates: str = VALUE,
    beside: Iterable[str] = (),
) -> Planted:
    """Plant a defect that some features show; `beside` show another mistake of it."""
    return plant(subject, (violates, cause), *shown_by, beside=frozenset(beside))


def shown(*shown_by: str, **fields: Any) -> Callable[[Marked], Marked]:
    """Mark a class as a defect that some features show."""
    return marking(lambda subject: of(subject, *shown_by, **fields))


def raises(
    error: type[Exception], *shown_by: str, beside: Iterable[str] = ()
) -> Callable[[Marked], Marked]:
    """Mark a class as a defect that raises an error where some features are."""
    cause = f"raised_{error.__name__}"
    return shown(*shown_by, cause=cause, violates=LIVE, beside=beside)
