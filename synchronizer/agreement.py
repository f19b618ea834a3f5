"""Ranks that share buckets compare their plans before they reduce anything.

Note [Through the store]
~~~~~~~~~~~~~~~~~~~~~~~~
A collective cannot find out that ranks disagree about who takes part in it: it hangs. So
each rank leaves its plan in the rendezvous store under its own rank, and then reads
those of the ranks with which *it* believes to share buckets. Whatever they believe, they
have left theirs by then, or do so as soon as they bind.

What two ranks compare is the sequence of buckets that they share, in launch order, after
the options on which they have to agree: the buckets that they sum together, and those in
which each checks the other. Where a rank is told to do neither on an axis, it compares
that with the ranks of the axis, which may have been told something else.
"""

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self

from torch.distributed.tensor import DTensor

from .config import SynchronizerConfig
from .errors import PlanMismatchError
from .grouping import BucketPlan, ParameterPlan
from .rendezvous import Rendezvous
from .wire import WireFormat


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two ranks' sequences of shared buckets part.

    Attributes:
        here: The first line of this rank that is unlike the other's.
        there: The other rank's line at the same place.
    """

    here: str
    there: str

    @property
    def subject(self) -> str:
        """What the ranks disagree about, by the first line that has a name."""
        for line in (self.here, self.there):
            name, _, rest = line.partition(": ")
            if rest.startswith(("torch.", "config ")):
                return name
        return "where a bucket ends"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a rank is going to reduce, or has launched.

    Attributes:
        options: One line for each option that ranks have to agree on.
        scopes: Sets of global ranks that compare something.
        buckets: In launch order: index of the set, and what its ranks compare by line.
    """

    options: tuple[str, ...]
    scopes: tuple[tuple[int, ...], ...]
    buckets: tuple[tuple[int, tuple[str, ...]], ...]

    @classmethod
    def of(cls, plans: Sequence[BucketPlan], options: Sequence[str] = ()) -> Self:
        """Describe buckets.

        Args:
            plans: In launch order; those that stay local are left out.
            options: Lines to compare before the buckets.

        Returns:
            What can be sent to others.
        """
        shared = [found for plan in plans for found in _shared(plan)]
        scopes = list(dict.fromkeys(ranks for ranks, _ in shared))
        buckets = ((scopes.index(ranks), tuple(lines)) for ranks, lines in shared)
        return cls(tuple(options), tuple(scopes), tuple(buckets))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote."""
        options, scopes, buckets = json.loads(zlib.decompress(data))
        return cls(
            tuple(options),
            tuple(map(tuple, scopes)),
            tuple((index, tuple(members)) for index, members in buckets),
        )

    def encode(self) -> bytes:
        """Make it bytes; equal where the fingerprints are."""
        parts = [self.options, self.scopes, self.buckets]
        return zlib.compress(json.dumps(parts).encode())

    def difference(self, rank: int, other: Self, peer: int) -> Difference | None:
        """Find where two ranks that share buckets part.

        Args:
            rank: Whose fingerprint this is.
            other: The other fingerprint.
            peer: Whose that is.

        Returns:
            None where they agree on all that they share.
        """
        lines = self._shared_with(peer), other._shared_with(rank)
        for here, there in zip_longest(*lines, fillvalue="nothing more"):
            if here != there:
                return Difference(here, there)
        return None

    def _shared_with(self, rank: int) -> Iterator[str]:
        """Yield what the buckets shared with a rank hold, line by line."""
        yield from self.options
        for index, lines in self.buckets:
            if rank in self.scopes[index]:
                yield from lines


def refuse_disagreement(
    plans: Sequence[BucketPlan],
    rendezvous: Rendezvous | None,
    config: SynchronizerConfig,
) -> None:
    """Refuse to bind where ranks that share buckets have different plans.

    Waits until all of them are here. Raises on each of them that can see it.

    Args:
        plans: Of this rank.
        rendezvous: Where to meet them; None where there is nobody to meet.
        config: Some of its options have to be the same on all ranks.

    Raises:
        PlanMismatchError: Some rank would reduce something else, or is not here.
    """
    if rendezvous is None:
        return
    mine = Fingerprint.of(plans, tuple(_options(config)))
    different = compare(rendezvous, "plan", mine, call="bind()")
    if different:
        peer, found = next(iter(different.items()))
        raise PlanMismatchError(
            f"ranks disagree about {found.subject}",
            expected="the same parameters, in the same order, on ranks that share them",
            got=f"{found.here}, on this rank; {found.there}, on rank {peer}",
            where="unlike rank " + ", ".join(map(str, different)),
        )


def compare(
    rendezvous: Rendezvous, topic: str, mine: Fingerprint, *, call: str
) -> dict[int, Difference]:
    """Leave a fingerprint for others, and compare it with those of the peers.

    Args:
        rendezvous: Where they are.
        topic: Under which no rank has left anything.
        mine: Of this rank.
        call: In which every peer leaves its own.

    Returns:
        By peer, where it differs; without those that agree.

    Raises:
        PlanMismatchError: A peer has left nothing in time.
    """
    encoded = mine.encode()
    digest = hashlib.sha256(encoded).hexdigest().encode()
    # The long note first: whoever finds the digest finds what it stands for.
    rendezvous.leave(f"{topic}/whole", encoded)
    rendezvous.leave(f"{topic}/digest", digest)
    different: dict[int, Difference] = {}
    for peer in rendezvous.peers:
        if rendezvous.read(f"{topic}/digest", peer, call=call) == digest:
            continue
        encoded = rendezvous.read(f"{topic}/whole", peer, call=call)
        other = Fingerprint.decode(encoded)
        found = mine.difference(rendezvous.rank, other, peer)
        if found:
            different[peer] = found
    return different


def _options(config: SynchronizerConfig) -> Iterator[str]:
    """Yield a line for each option that plans do not show and ranks have to share."""
    for name in ("rebuild", "debug"):
        yield f"{name}: config {name}={getattr(config, name)!r}"


def _shared(plan: BucketPlan) -> Iterator[tuple[tuple[int, ...], list[str]]]:
    """Yield sets of ranks, and what those must have in common about a bucket."""
    for verb, scope in (("sum", plan.scope), ("check", plan.check)):
        if scope:
            ranks = ", ".join(map(str, scope.ranks))
            end = f"the end of a bucket: {verb} over ranks {ranks}"
            yield scope.ranks, [*_lines(plan), end]
    for member in plan.members:
        # Its place in the bucket is none of their business: others in it are not theirs.
        if len(member.reduction.alone) > 1:
            line = f"{member.name}: {_describe(member, plan)}"
            yield member.reduction.alone, [line]


def _lines(plan: BucketPlan) -> Iterator[str]:
    scattered = f", in {plan.num_shards} shards" if plan.num_shards > 1 else ""
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        where = f"element {offset} of {plan.buffer_numel}{scattered}"
        yield f"{member.name}: {_describe(member, plan)} at {where}"


def _describe(member: ParameterPlan, plan: BucketPlan) -> str:
    parameter = member.parameter
    placements = parameter.placements if isinstance(parameter, DTensor) else ()
    parts = [
        f"{plan.key.grad_dtype} of shape {tuple(parameter.shape)}",
        f"locally {member.local_shape} with strides {member.local_stride}",
        f"placements ({', '.join(map(str, placements))})",
    ]
    if member.reduction.words:
        parts.append(f"axis reductions ({', '.join(member.reduction.words)})")
    if plan.key.wire != WireFormat(plan.key.grad_dtype):
        parts.append(f"sent {plan.key.wire}")
    return ", ".join(parts)
