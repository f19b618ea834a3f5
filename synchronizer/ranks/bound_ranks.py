"""The ranks of the synchronizers that are bound on this rank, which may share some."""

from collections.abc import Iterable
from weakref import WeakKeyDictionary, WeakSet

import torch.distributed as dist


class BoundRanks:
    """The ranks that reduce with this rank in one bound synchronizer.

    `scopes` are the sets of global ranks that reduce or compare, this rank in each.
    """

    def __init__(self, scopes: Iterable[Iterable[int]]) -> None:
        ranks = {rank for scope in scopes for rank in scope}
        self._bound = WeakSet[BoundRanks]()
        default_group = dist.group.WORLD
        if len(ranks) > 1 and default_group is not None:
            self._bound = _by_default_group.setdefault(default_group, self._bound)
            self._bound.add(self)

    @property
    def are_shared(self) -> bool:
        """Tell whether another bound synchronizer reduces on this rank, with any peers.

        Also without a common peer, ranks may wait in a circle. On a 2 x 2 mesh one
        synchronizer may reduce over rows and the other one over columns. If each rank
        launches in another order, each of the four collectives waits for the next one.
        """
        return any(other is not self for other in self._bound)

    def release(self) -> None:
        """Note that the synchronizer is not bound any more."""
        self._bound.discard(self)


# Each rank of a job has a default process group of its own, also where ranks are threads.
_by_default_group: WeakKeyDictionary[dist.ProcessGroup, WeakSet[BoundRanks]] = (
    WeakKeyDictionary()
)
