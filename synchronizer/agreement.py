"""Ranks that share buckets compare their plans before they reduce anything.

Note [Through the store]
~~~~~~~~~~~~~~~~~~~~~~~~
A collective cannot find out that ranks disagree about who takes part in it: it hangs. So
each rank leaves its plan in the rendezvous store under its own rank, and then reads
those of the ranks with which *it* believes to share buckets. Whatever they believe, they
have left theirs by then, or do so as soon as they bind.

What two ranks compare is the sequence of buckets that they share, in launch order. The
key is the number of times that this process has bound a synchronizer, so ranks that
share buckets have to bind their synchronizers in the same order.
"""

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.tensor import DTensor

from .errors import PlanMismatchError
from .grouping import BucketPlan, ParameterPlan

_num_binds: WeakKeyDictionary[dist.ProcessGroup, Counter[str]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """What a rank is going to reduce.

    Attributes:
        scopes: The global ranks of each scope.
        buckets: In launch order: index of the scope, and one line for each member.
    """

    scopes: tuple[tuple[int, ...], ...]
    buckets: tuple[tuple[int, tuple[str, ...]], ...]

    @classmethod
    def of(cls, plans: Sequence[BucketPlan]) -> Self:
        shared = [(plan, plan.scope.ranks) for plan in plans if plan.scope]
        scopes = list(dict.fromkeys(ranks for _, ranks in shared))
        buckets = ((scopes.index(ranks), tuple(_lines(plan))) for plan, ranks in shared)
        return cls(tuple(scopes), tuple(buckets))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        scopes, buckets = json.loads(zlib.decompress(data))
        return cls(tuple(map(tuple, scopes)), tuple((s, tuple(m)) for s, m in buckets))

    def encode(self) -> bytes:
        return zlib.compress(json.dumps([self.scopes, self.buckets]).encode())

    def shared_with(self, rank: int) -> Iterator[str]:
        """Yield what the buckets shared with a rank hold, line by line."""
        for index, members in self.buckets:
            if rank in self.scopes[index]:
                ranks = ", ".join(map(str, self.scopes[index]))
                yield from members
                yield f"the end of a bucket: sum over ranks {ranks}"


def refuse_disagreement(plans: Sequence[BucketPlan]) -> None:
    """Refuse to bind where ranks that share buckets have different plans.

    Waits until all of them are here. Raises on each of them that can see it.

    Args:
        plans: Of this rank.

    Raises:
        PlanMismatchError: Some rank would reduce something else, or is not here.
    """
    mine = _Fingerprint.of(plans)
    rank = dist.get_rank() if mine.scopes else 0
    peers = sorted({r for scope in mine.scopes for r in scope} - {rank})
    if not peers or dist.get_backend() == "fake":  # which has no other ranks
        return
    encoded = mine.encode()
    theirs = _exchange(encoded, rank, peers)
    different: dict[int, tuple[str, str]] = {}
    for peer, found in theirs.items():
        if found != encoded:
            lines = mine.shared_with(peer), _Fingerprint.decode(found).shared_with(rank)
            for here, there in zip_longest(*lines, fillvalue="nothing more"):
                if here != there:
                    different[peer] = (here, there)
                    break
    if different:
        peer, (here, there) = next(iter(different.items()))
        raise PlanMismatchError(
            f"ranks disagree about {_subject(here, there)}",
            expected="the same parameters, in the same order, on ranks that share them",
            got=f"{here}, on this rank; {there}, on rank {peer}",
            where="unlike rank " + ", ".join(map(str, different)),
        )


def _exchange(encoded: bytes, rank: int, peers: Sequence[int]) -> dict[int, bytes]:
    """Leave a fingerprint for others, and read those of some."""
    binds = _num_binds.setdefault(c10d._get_default_group(), Counter())  # noqa: SLF001
    binds["binds"] += 1
    digest = hashlib.sha256(encoded).digest()
    store: Any = c10d._get_default_store()  # noqa: SLF001
    prefix = f"gradient_synchronizer/{binds['binds']}"
    # The plan first: whoever finds the digest finds the plan.
    store.set(f"{prefix}/plan/{rank}", encoded)
    store.set(f"{prefix}/digest/{rank}", digest.hex())
    found: dict[int, bytes] = {}
    for peer in peers:
        try:
            same = store.get(f"{prefix}/digest/{peer}") == digest.hex().encode()
        except dist.DistError as error:
            raise PlanMismatchError(
                f"rank {peer} did not call bind()",
                expected="bind() on every rank that shares buckets",
                got=f"{type(error).__name__}: {error}",
                where=f"bind() number {binds['binds']}",
            ) from error
        found[peer] = encoded if same else store.get(f"{prefix}/plan/{peer}")
    return found


def _lines(plan: BucketPlan) -> Iterator[str]:
    scattered = f", in {plan.num_shards} shards" if plan.num_shards > 1 else ""
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        where = f"element {offset} of {plan.buffer_numel}{scattered}"
        yield f"{member.name}: {_describe(member, plan)} at {where}"


def _describe(member: ParameterPlan, plan: BucketPlan) -> str:
    parameter = member.parameter
    placements = parameter.placements if isinstance(parameter, DTensor) else ()
    return (
        f"{plan.key.grad_dtype} of shape {tuple(parameter.shape)}, locally"
        f" {member.local_shape} with strides {member.local_stride},"
        f" placements ({', '.join(map(str, placements))})"
    )


def _subject(here: str, there: str) -> str:
    """Name the parameter of the first line that has one."""
    named = [line.partition(":")[0] for line in (here, there) if ": torch." in line]
    return named[0] if named else "where a bucket ends"
