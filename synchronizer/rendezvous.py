"""Where ranks that share buckets leave each other notes: the rendezvous store.

Note [Keys that are never stale]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A store outlives what was written to it: synchronizers are bound again, and a default
process group may be destroyed and made anew on the same store. So each key starts with
two numbers. The first counts the default process groups in which this rank has bound a
synchronizer, and the store itself keeps that count; the second counts the binds in this
process group. Ranks that share buckets have to agree on both, that is, to bind their
synchronizers in the same order.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .errors import PlanMismatchError

_ROOT = "gradient_synchronizer"
_incarnations: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()
_num_binds: WeakKeyDictionary[dist.ProcessGroup, Counter[str]] = WeakKeyDictionary()


class Rendezvous:
    """The notes of one bound synchronizer, see Note [Keys that are never stale].

    Args:
        store: Of the default process group.
        prefix: Of every key; no other bind has it.
        rank: This one, global.
        peers: The ranks with which this one believes to share buckets, in ascending
            order, without itself.
        number: How many binds with peers there were, this one included.
    """

    def __init__(
        self, store: Any, prefix: str, *, rank: int, peers: list[int], number: int
    ) -> None:
        self._store = store
        self._prefix = f"{prefix}/{number}"
        self.rank = rank
        self.peers = peers
        self.number = number

    def leave(self, topic: str, note: bytes) -> None:
        """Leave a note under this rank.

        Args:
            topic: What it is about.
            note: Replaces the one that was there.
        """
        self._store.set(self._key(topic, self.rank), note)

    def take_back(self, topic: str) -> None:
        """Delete this rank's note.

        Args:
            topic: One on which this rank has left a note.
        """
        self._store.delete_key(self._key(topic, self.rank))

    def read(self, topic: str, peer: int, *, call: str) -> bytes:
        """Return a peer's note, and wait until there is one.

        Args:
            topic: What it is about.
            peer: Whose.
            call: In which the peer leaves it.

        Returns:
            The note.

        Raises:
            PlanMismatchError: None came in the store's time.
        """
        try:
            return bytes(self._store.get(self._key(topic, peer)))
        except dist.DistError as error:
            raise PlanMismatchError(
                f"rank {peer} did not call {call}",
                expected=f"{call} on every rank that shares buckets",
                got=f"{type(error).__name__}: {error}",
                where=f"bind() number {self.number}",
            ) from error

    def peek(self, topic: str, peer: int) -> bytes | None:
        """Return a peer's note, or None where there is none so far.

        Args:
            topic: What it is about.
            peer: Whose. A note that others peek at is replaced, and never taken back:
                it could go between the question and the answer.

        Returns:
            The note, without waiting for it.
        """
        key = self._key(topic, peer)
        return bytes(self._store.get(key)) if self._store.check([key]) else None

    def _key(self, topic: str, rank: int) -> str:
        return f"{self._prefix}/{topic}/{rank}"


def meet(scopes: Iterable[Iterable[int]]) -> Rendezvous | None:
    """Open the notes of a synchronizer that is being bound.

    Args:
        scopes: The global ranks of each set that sums something, this one in each.

    Returns:
        None where there is nobody to meet.
    """
    if not dist.is_initialized() or _is_fake():
        return None
    # Counted even without peers: the next process group may bring some.
    number = incarnation()
    rank = dist.get_rank()
    peers = sorted({peer for ranks in scopes for peer in ranks} - {rank})
    if not peers:
        return None
    default = c10d._get_default_group()  # noqa: SLF001
    binds = _num_binds.setdefault(default, Counter())
    binds["binds"] += 1
    return Rendezvous(
        _store(), f"{_ROOT}/{number}", rank=rank, peers=peers, number=binds["binds"]
    )


def incarnation() -> int:
    """Return how many default process groups this rank has used us in, on this store."""
    default = c10d._get_default_group()  # noqa: SLF001
    if _is_fake():
        return 0
    if default not in _incarnations:
        key = f"{_ROOT}/incarnations/{dist.get_rank()}"
        _incarnations[default] = _store().add(key, 1)
    return _incarnations[default]


def _is_fake() -> bool:
    """Tell whether there are no other ranks, whatever world size torch pretends."""
    return bool(dist.get_backend() == "fake")


def _store() -> Any:
    return c10d._get_default_store()  # noqa: SLF001
