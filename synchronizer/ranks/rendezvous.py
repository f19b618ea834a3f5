"""The rendezvous store, through which ranks that share buckets exchange notes.

Note [Keys that are never stale]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A store keeps its keys for longer than a synchronizer is bound, and a program may
destroy the default process group and make another one on the same store. So each key
starts with two numbers. The first counts the default process groups in which this rank
has bound a synchronizer; the store itself keeps that count. The second counts the binds
in this process group. Ranks that share buckets have to agree on both numbers: they have
to bind their synchronizers in the same order.
"""

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from synchronizer.contract.errors import PlanMismatchError

_ROOT = "gradient_synchronizer"
_default_group_numbers: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()
_num_binds: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()


class Rendezvous:
    """The notes of one bound synchronizer, see Note [Keys that are never stale].

    `peers` are the global ranks that share buckets with this rank according to its own
    plan, ascending, without this rank. `number` counts the binds with peers so far,
    this bind included.
    """

    def __init__(
        self, store: Any, prefix: str, *, rank: int, peers: list[int], number: int
    ) -> None:
        self._store = store
        self._prefix = f"{prefix}/{number}"
        self.rank = rank
        self.peers = peers
        self.number = number

    def write(self, topic: str, note: bytes) -> None:
        """Write the note of this rank about a topic, in place of an earlier note."""
        self._store.set(self._key(topic, self.rank), note)

    def delete(self, topic: str) -> None:
        """Delete the note that this rank has written about a topic."""
        self._store.delete_key(self._key(topic, self.rank))

    def read(self, topic: str, peer: int, *, call: str) -> bytes:
        """Return the note of a peer, and wait until the peer writes it in `call`.

        Raises:
            PlanMismatchError: The peer wrote no note within the timeout of the store.
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
        """Return the note of a peer without a wait, or None where there is none so far.

        A note that peers peek at is replaced and never deleted: otherwise it could
        vanish between the two requests to the store.
        """
        key = self._key(topic, peer)
        return bytes(self._store.get(key)) if self._store.check([key]) else None

    def _key(self, topic: str, rank: int) -> str:
        return f"{self._prefix}/{topic}/{rank}"


def open_rendezvous(scopes: Iterable[Iterable[int]]) -> Rendezvous | None:
    """Return the notes of a synchronizer that is being bound; None without peers.

    `scopes` are the sets of global ranks that reduce or compare, this rank in each.
    """
    if not dist.is_initialized() or _is_fake():
        return None
    # The count includes binds without peers: the next process group may have peers.
    number = default_group_number()
    rank = dist.get_rank()
    peers = sorted({peer for ranks in scopes for peer in ranks} - {rank})
    if not peers:
        return None
    default = c10d._get_default_group()  # noqa: SLF001
    bind_number = _num_binds[default] = _num_binds.get(default, 0) + 1
    return Rendezvous(
        _store(), f"{_ROOT}/{number}", rank=rank, peers=peers, number=bind_number
    )


def default_group_number() -> int:
    """Count the default process groups that this rank has used on this store."""
    default = c10d._get_default_group()  # noqa: SLF001
    if _is_fake():
        return 0
    if default not in _default_group_numbers:
        key = f"{_ROOT}/incarnations/{dist.get_rank()}"
        _default_group_numbers[default] = _store().add(key, 1)
    return _default_group_numbers[default]


def _is_fake() -> bool:
    """Tell whether torch only pretends that there are other ranks."""
    return bool(dist.get_backend() == "fake")


def _store() -> Any:
    return c10d._get_default_store()  # noqa: SLF001
