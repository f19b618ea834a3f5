"""The comparison of plans between ranks that share buckets, before the first reduction.

Note [Through the store]
~~~~~~~~~~~~~~~~~~~~~~~~
A collective cannot detect that ranks disagree about its members: it hangs. So each rank
writes its plan to the rendezvous store under its own rank. Then it reads the plans of
the ranks with which *it* shares buckets according to its own plan. A rank writes its plan
in `bind()`, even a wrong one, so a read waits only until that rank binds. A rank whose own
plan shares no bucket writes none: who expects it waits for the timeout of the store.

Two ranks compare, line by line:

    * the options on which ranks have to agree;
    * the buckets that they sum together, in launch order;
    * parameters on axes with the reduction "none", with the ranks of these axes,
      because those may have another reduction there;
    * checksums of the parameters whose gradients they sum together.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self

from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.contract.errors import PlanMismatchError
from syncverify.synchronizer.plan.grouping import BucketPlan, ParameterPlan
from syncverify.synchronizer.plan.replica_values import checksums
from syncverify.synchronizer.plan.wire_format import WireFormat
from syncverify.synchronizer.ranks.notes import Notes
from syncverify.synchronizer.ranks.scope import rank_list

_AT = " at element "


@dataclass(frozen=True, slots=True)
class Difference:
    """Two lines that differ in two ranks' sequences of shared buckets.

    Attributes:
        here: Line of this rank.
        there: Line of the other rank.
    """

    here: str
    there: str

    @property
    def subject(self) -> str:
        """The subject of the disagreement, from the first line that has a name."""
        return _name(self.here) or _name(self.there) or "where a bucket ends"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The plan of a rank, in a form that ranks can exchange.

    Attributes:
        options: One line for each option on which ranks have to agree.
        scopes: Sets of global ranks that compare lines.
        buckets: In launch order: index of the set, and the lines that its ranks
            compare.
        values: Index of the set, and checksum, by name of the parameter.
    """

    options: tuple[str, ...]
    scopes: tuple[tuple[int, ...], ...]
    buckets: tuple[tuple[int, tuple[str, ...]], ...]
    values: dict[str, tuple[int, int]]

    @classmethod
    def of(
        cls,
        plans: Sequence[BucketPlan],
        options: Sequence[str] = (),
        checksums: Mapping[nn.Parameter, int] | None = None,
    ) -> Self:
        """Describe plans in launch order, without local buckets, after option lines."""
        known = checksums or {}
        shared = [found for plan in plans for found in _shared(plan)]
        scopes = list(dict.fromkeys(ranks for ranks, _ in shared))
        buckets = ((scopes.index(ranks), tuple(lines)) for ranks, lines in shared)
        values = {
            member.name: (scopes.index(plan.scope.ranks), known[member.parameter])
            for plan in plans
            for member in plan.members
            if plan.scope and member.parameter in known
        }
        return cls(tuple(options), tuple(scopes), tuple(buckets), values)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the bytes that `encode` wrote."""
        options, scopes, buckets, values = json.loads(zlib.decompress(data))
        return cls(
            tuple(options),
            tuple(map(tuple, scopes)),
            tuple((index, tuple(members)) for index, members in buckets),
            {name: (index, value) for name, (index, value) in values.items()},
        )

    def encode(self) -> bytes:
        """Return the fingerprint as bytes; equal bytes for equal fingerprints."""
        parts = [self.options, self.scopes, self.buckets, self.values]
        return zlib.compress(json.dumps(parts).encode())

    def difference(self, rank: int, other: Self, peer: int) -> Difference | None:
        """Return a difference in buckets of both `rank` and `peer`, if any.

        A parameter of another kind also moves the places of others. So it comes before
        other places, and the one that was registered first before all.
        """
        ours, theirs = [*self._shared_with(peer)], [*other._shared_with(rank)]
        by_name = {_name(line): line for line in theirs}
        for here in reversed(ours):
            there = by_name.get(_name(here), here)
            if _name(here) and _kind(here) != _kind(there):
                return Difference(here, there)
        for here, there in zip_longest(ours, theirs, fillvalue="nothing more"):
            if here != there:
                return Difference(here, there)
        return None

    def unequal_value(self, other: Self, peer: int) -> Difference | None:
        """Return a parameter that `peer` shares, has an equal plan for, and another value of."""
        for name, (index, value) in reversed(self.values.items()):
            _, there = other.values.get(name, (0, value))
            if peer in self.scopes[index] and value != there:
                return Difference(f"{name}: checksum {value}", f"checksum {there}")
        return None

    def _shared_with(self, rank: int) -> Iterator[str]:
        """Yield the lines of the buckets that this rank shares with another rank."""
        yield from self.options
        for index, lines in self.buckets:
            if rank in self.scopes[index]:
                yield from lines


def _name(line: str) -> str:
    """Return the parameter or option of a line; "" for the end of a bucket."""
    name, _, rest = line.partition(": ")
    return name if rest.startswith(("torch.", "config ", "checksum ")) else ""


def _kind(line: str) -> str:
    """Return a line without the place in the bucket."""
    return line.partition(_AT)[0]


def mesh_ranks(plans: Sequence[BucketPlan]) -> list[list[int]]:
    """List the ranks of each mesh on which there is a parameter."""
    parameters = [member.parameter for plan in plans for member in plan.members]
    meshes = {p.device_mesh: None for p in parameters if isinstance(p, DTensor)}
    return [mesh.mesh.flatten().tolist() for mesh in meshes]


def refuse_different_plans(
    plans: Sequence[BucketPlan], notes: Notes | None, config: SynchronizerConfig
) -> None:
    """Refuse to bind where ranks that share buckets have different plans, or unequal replicas.

    Waits for all of these ranks. Raises on each rank that can see the difference.

    Raises:
        PlanMismatchError: A rank has another plan or other values, or did not bind in time.
    """
    if notes is None:
        return
    # The options that plans do not show and ranks have to share.
    options = [
        f"{name}: config {name}={getattr(config, name)!r}"
        for name in ("rebuild", "unequal_replicas")
    ]
    values = checksums(plans) if config.unequal_replicas == "error" else {}
    mine = Fingerprint.of(plans, options, values)
    others = _others(notes, mine)
    different = _found(
        others, lambda other, peer: mine.difference(notes.rank, other, peer)
    )
    if different:
        peer, found = next(iter(different.items()))
        raise PlanMismatchError(
            f"ranks disagree about {found.subject}",
            expected="the same parameters, in the same order, on ranks that share them",
            got=f"{found.here}, on this rank; {found.there}, on rank {peer}",
            where="unlike rank " + rank_list(different),
        )
    unequal = _found(others, mine.unequal_value)
    if unequal:
        peer, found = next(iter(unequal.items()))
        raise PlanMismatchError(
            f"replicas of {found.subject} are unequal: ranks that sum its gradient would train apart",
            expected="equal values in bind() on all ranks that sum a gradient",
            got=f"{found.here}, on this rank; {found.there}, on rank {peer}",
            where="unlike rank " + rank_list(unequal),
            hint="give all ranks the same values before bind(), as by one seed or one checkpoint;"
            ' SynchronizerConfig(unequal_replicas="broadcast") sends those of the lowest rank,'
            ' and "keep" compares nothing',
        )


def _found(
    others: Mapping[int, Fingerprint],
    difference: Callable[[Fingerprint, int], Difference | None],
) -> dict[int, Difference]:
    found = {peer: difference(other, peer) for peer, other in others.items()}
    return {peer: each for peer, each in found.items() if each}


def _others(notes: Notes, mine: Fingerprint) -> dict[int, Fingerprint]:
    """Return the fingerprint of each peer that publishes another one.

    Raises `PlanMismatchError` where a peer publishes nothing in time.
    """
    encoded = mine.encode()
    digest = hashlib.sha256(encoded).hexdigest().encode()
    # The long note is written first: a peer that finds the digest finds the note too.
    notes.write("plan/whole", encoded)
    notes.write("plan/digest", digest)
    return {
        peer: Fingerprint.decode(notes.read("plan/whole", peer, call="bind()"))
        for peer in notes.peers
        if notes.read("plan/digest", peer, call="bind()") != digest
    }


def _shared(plan: BucketPlan) -> Iterator[tuple[tuple[int, ...], list[str]]]:
    """Yield sets of ranks, with the lines about a bucket that have to be equal."""
    if plan.scope:
        ranks = rank_list(plan.scope.ranks)
        end = f"the end of a bucket: sum over ranks {ranks}"
        yield plan.scope.ranks, [*_lines(plan), end]
    for member in plan.members:
        # The bucket is left out: these ranks share no other member of it with this rank.
        if len(member.reduction.unreduced_ranks) > 1:
            line = f"{member.name}: {_describe(member, plan)}"
            yield member.reduction.unreduced_ranks, [line]


def _lines(plan: BucketPlan) -> Iterator[str]:
    scattered = f", in {plan.num_shards} shards" if plan.num_shards > 1 else ""
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        where = f"{offset} of {plan.buffer_numel}{scattered}"
        yield f"{member.name}: {_describe(member, plan)}{_AT}{where}"


def _describe(member: ParameterPlan, plan: BucketPlan) -> str:
    parameter = member.parameter
    placements = parameter.placements if isinstance(parameter, DTensor) else ()
    parts = [
        f"{plan.key.grad_dtype} of shape {tuple(parameter.shape)}",
        f"locally {member.local_shape} with strides {member.local_stride}",
        f"placements ({', '.join(map(str, placements))})",
    ]
    if member.reduction.axis_reductions:
        parts.append(f"axis reductions ({', '.join(member.reduction.axis_reductions)})")
    if plan.key.wire != WireFormat(plan.key.grad_dtype):
        parts.append(f"sent {plan.key.wire}")
    return ", ".join(parts)
