"""Notes that ranks which share buckets exchange, through the store of the process group.

Note [Keys that are never stale]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A store keeps its keys for longer than a synchronizer is bound, and a program may
destroy the default process group and make another one on the same store. So each key
starts with two numbers. The first counts the default process groups in which this rank
has bound a synchronizer; the store itself keeps that count. The second counts the binds
of the rank that writes, in this process group.

The second number may differ between ranks: an encoder on ranks 0 and 1 may come before a
model on ranks 0 to 3. So each bind tells its audience, the ranks that a plan on the same
meshes could name, and a rank goes on to the next bind of a peer of which it is in the
audience. Each two ranks have to bind the synchronizers that they could share in the same
order. A rank that waits in vain for a peer takes its bind back.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from syncverify.synchronizer.contract.errors import PlanMismatchError

_ROOT = "gradient_synchronizer"


@dataclass(slots=True)
class _Binds:
    """Numbers of the binds so far, by rank.

    Attributes:
        num_own: Number of binds of this rank.
        last: Number of the last bind of another rank that was heard of.
        num_unheard: Number of binds since then in which both could take part.
    """

    num_own: int = 0
    last: Counter[int] = field(default_factory=Counter)
    num_unheard: Counter[int] = field(default_factory=Counter)


_default_group_numbers: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()
_binds: WeakKeyDictionary[dist.ProcessGroup, _Binds] = WeakKeyDictionary()


class Notes:
    """The notes of one bound synchronizer, see Note [Keys that are never stale].

    `peers` are the global ranks that share buckets with this rank according to its own
    plan, ascending, without this rank. `audience` are the other ranks that could do so.
    """

    def __init__(
        self,
        store: Any,
        prefix: str,
        *,
        rank: int,
        peers: list[int],
        audience: Set[int],
        binds: _Binds,
    ) -> None:
        self._store, self._prefix = store, prefix
        self.rank, self.peers = rank, peers
        self._audience, self._binds = audience, binds
        binds.num_own += 1
        binds.num_unheard.update(audience)
        # The bind whose notes belong to this synchronizer, by rank.
        self._numbers = {rank: binds.num_own}
        self.write("audience", json.dumps(sorted(audience)).encode())

    def write(self, topic: str, note: bytes) -> None:
        """Write the note of this rank about a topic, in place of an earlier note."""
        self._store.set(self._key(topic, self.rank), note)

    def read(self, topic: str, peer: int, *, call: str) -> bytes:
        """Return the note of a peer, and wait until the peer writes it in `call`.

        Raises:
            PlanMismatchError: The peer wrote no note within the timeout of the store.
        """
        try:
            return bytes(self._store.get(self._key(topic, peer)))
        except RuntimeError as error:  # a FileStore's are plain; others have a subclass
            if peer not in self._numbers:
                # Do not count this bind; what peers did in it that came is over.
                self.write("audience", b"[]")
                self._binds.num_unheard.subtract(self._audience - self._numbers.keys())
            raise PlanMismatchError(
                f"rank {peer} did not call {call}",
                expected=f"{call} on every rank that shares buckets",
                got=f"{type(error).__name__}: {error}",
                where=f"bind() number {self._numbers[self.rank]}",
            ) from error

    def _key(self, topic: str, rank: int) -> str:
        """Return the key of a rank's note; wait for the bind of a peer that is this one."""
        binds = self._binds
        if rank not in self._numbers:
            while binds.num_unheard[rank]:
                key = f"{self._prefix}/{binds.last[rank] + 1}/audience/{rank}"
                binds.num_unheard[rank] -= self.rank in json.loads(self._store.get(key))
                binds.last[rank] += 1
            self._numbers[rank] = binds.last[rank]
        return f"{self._prefix}/{self._numbers[rank]}/{topic}/{rank}"


def open_notes(
    scopes: Collection[Iterable[int]], meshes: Iterable[Iterable[int]]
) -> Notes | None:
    """Return the notes of a synchronizer that is being bound; None without peers.

    `scopes` are the sets of global ranks that reduce or compare, this rank in each, and
    `meshes` those on which the parameters are.
    """
    if not dist.is_initialized() or _is_fake():
        return None
    # The count includes binds without peers: the next process group may have peers.
    number = default_group_number()
    rank = dist.get_rank()
    peers = sorted({peer for ranks in scopes for peer in ranks} - {rank})
    audience = {each for ranks in (*scopes, *meshes) for each in ranks} - {rank}
    if not audience:
        return None
    store = c10d._get_default_store()  # noqa: SLF001
    binds = _binds.setdefault(c10d._get_default_group(), _Binds())  # noqa: SLF001
    # A rank whose parts are all empty has no peers, but other ranks count its bind.
    prefix = f"{_ROOT}/{number}"
    opened = Notes(
        store, prefix, rank=rank, peers=peers, audience=audience, binds=binds
    )
    return opened if peers else None


def default_group_number() -> int:
    """Count the default process groups that this rank has used on this store."""
    default = c10d._get_default_group()  # noqa: SLF001
    if _is_fake():
        return 0
    if default not in _default_group_numbers:
        store = c10d._get_default_store()  # noqa: SLF001
        key = f"{_ROOT}/incarnations/{dist.get_rank()}"
        _default_group_numbers[default] = store.add(key, 1)
    return _default_group_numbers[default]


def _is_fake() -> bool:
    """Tell whether torch only pretends that there are other ranks."""
    return bool(dist.get_backend() == "fake")
