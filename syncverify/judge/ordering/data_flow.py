"""The ranks of a collective that send, and those that receive."""

from __future__ import annotations

from typing import Final

from syncverify.trace.records import CollectiveLaunch

_FROM_ROOT: Final = frozenset({"broadcast", "scatter"})
_TO_ROOT: Final = frozenset({"reduce", "gather"})


def sends(launched: CollectiveLaunch, rank: int) -> bool:
    """Tell whether results of other ranks depend on a rank, by its launch."""
    if launched.operation in _FROM_ROOT:
        return launched.root in (None, rank)
    return launched.operation != "recv"


def receives(launched: CollectiveLaunch, rank: int) -> bool:
    """Tell whether the result of a rank depends on other ranks, by its launch."""
    if launched.operation in _FROM_ROOT:
        return launched.root != rank
    if launched.operation in _TO_ROOT:
        return launched.root in (None, rank)
    return launched.operation != "send"
