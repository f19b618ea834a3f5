"""Process groups for sets of ranks.

Note [Names of new process groups]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
One all-reduce over several mesh axes needs a process group of all ranks that these axes
span. The mesh may not have such a group. `torch.distributed.new_group` can create one
in which only the members take part. But then it makes the name of the group, which is
also the key prefix in the rendezvous store, from the ranks and from the *number of
groups in which this process is a member*. So two things go wrong, both seen with gloo
on torch 2.13:

    * Members that are in different numbers of groups never find each other.
    * A group that is created after an equal group was destroyed finds the addresses of
      the destroyed one, and hangs.

So this module chooses the name. It consists of

    * the ranks;
    * the number of groups of these ranks that this process has created, counted from 1
      in each default process group. The members agree on it, because each of them takes
      part in every creation;
    * the number of the default process group, see Note [Keys that are never stale].
"""

import hashlib
from collections import Counter
from datetime import timedelta
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from syncverify.synchronizer.contract.errors import InvalidArgumentError
from syncverify.synchronizer.ranks.notes import default_group_number
from syncverify.synchronizer.ranks.scope import ReduceScope

_generations: WeakKeyDictionary[dist.ProcessGroup, Counter[tuple[int, ...]]] = (
    WeakKeyDictionary()
)


class ReductionGroups:
    """The process groups of reductions, one for each distinct set of ranks."""

    def __init__(self) -> None:
        self._groups: dict[ReduceScope, dist.ProcessGroup] = {}
        # Each with the default process group of its creation.
        self._created: list[tuple[dist.ProcessGroup | None, dist.ProcessGroup]] = []

    def get(self, scope: ReduceScope) -> dist.ProcessGroup:
        """Return the process group of exactly these ranks.

        A single mesh axis has a group already. For several axes this method creates
        one. All members have to call it, in the same order as for other groups.
        """
        if scope in self._groups:
            return self._groups[scope]
        if scope.group is not None:
            group = scope.group
        elif scope.mesh is not None and len(scope.axes) == 1:
            group = scope.mesh.get_group(scope.axes[0])
        else:
            group = _create_group(scope.ranks)
            self._created.append((dist.group.WORLD, group))
        self._groups[scope] = group
        return group

    def destroy(self) -> None:
        """Destroy the groups that this object created; groups of meshes stay."""
        self._groups.clear()
        while self._created:
            default, group = self._created.pop()
            # A group ends with the default process group under which it was made.
            if default is dist.group.WORLD:
                dist.destroy_process_group(group)


def usable_ranks(group: object) -> tuple[int, ...]:
    """Return the ranks of a user's process group, ascending, this rank included.

    On ranks that are not members, `torch.distributed.new_group` returns another object,
    which torch would take for the default group.

    Raises:
        InvalidArgumentError: This rank cannot use the group.
    """
    if isinstance(group, dist.ProcessGroup):
        try:
            return tuple(sorted(dist.get_process_group_ranks(group)))
        except KeyError:
            got = "a group that was destroyed"
    elif group == dist.GroupMember.NON_GROUP_MEMBER:
        got = "a rank that is not a member of it"
    else:
        got = repr(group)
    raise InvalidArgumentError(
        "the process group of ordinary parameters cannot be used",
        expected="a process group of which this rank is a member",
        got=got,
        hint="pass a group of which the rank is a member, or None, on every rank, and keep the"
        " group until unbind()",
    )


def _create_group(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    """Return a new group of ascending `ranks`, in which only its members take part.

    Source:
        `torch.distributed.new_group(use_local_synchronization=True)`, with another
        name: see Note [Names of new process groups].
    """
    default = c10d._get_default_group()  # noqa: SLF001
    backend, store = c10d._world.pg_map[default]  # noqa: SLF001
    group: dist.ProcessGroup
    # With `init_process_group(device_id=...)` torch would split the communicator of the default
    # group. A split needs all ranks of it, which may not bind this synchronizer (pytorch#129965).
    device, default.bound_device_id = default.bound_device_id, None
    try:
        group, _ = c10d._new_process_group_helper(  # noqa: SLF001
            len(ranks),
            ranks.index(dist.get_rank()),
            list(ranks),
            dist.Backend(backend),
            store,
            c10d.GroupName(_unused_name(default, ranks)),
            timeout=_timeout(default, backend),
            group_desc="gradient_reduction",
        )
    finally:
        default.bound_device_id = device
    numbers = {rank: index for index, rank in enumerate(ranks)}
    c10d._world.pg_group_ranks[group] = numbers  # noqa: SLF001
    return group


def _timeout(default: dist.ProcessGroup, backend: str) -> timedelta:
    """Return the timeout that the user gave the default group."""
    for device in default._device_types:  # noqa: SLF001
        options = getattr(default._get_backend(device), "options", None)  # noqa: SLF001
        if options is not None:
            return options._timeout  # type: ignore[no-any-return]  # noqa: SLF001
    return c10d._get_default_timeout(dist.Backend(backend))  # noqa: SLF001


def _unused_name(default: dist.ProcessGroup, ranks: tuple[int, ...]) -> str:
    made = _generations.setdefault(default, Counter())
    made[ranks] += 1
    digest = hashlib.sha256("_".join(map(str, ranks)).encode()).hexdigest()[:16]
    return f"gradient_reduction_{digest}_{default_group_number()}_{made[ranks]}"
