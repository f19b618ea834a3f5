"""Process groups for sets of ranks.

Note [Names of new process groups]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Several mesh axes are reduced by one all-reduce over all the ranks they span, for which
no process group may exist yet. `torch.distributed.new_group` can create one with only
its members taking part, but then takes the group's name, which is also its key prefix
in the rendezvous store, from the ranks and from the *number of groups this process is
in*. Members that are in different numbers of groups never find each other; and a group
made after an equal one was destroyed finds the addresses of the dead one and hangs
(both seen with gloo on torch 2.13). So the group is named here: after its ranks, and
after how often this process has made a group of them, which its members agree on
because each of them takes part every time; counted from 1 in each default process group,
whose number is part of the name: see Note [Keys that are never stale].
"""

import hashlib
from collections import Counter
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .errors import ProcessGroupError
from .rendezvous import incarnation
from .scope import ReduceScope

_generations: WeakKeyDictionary[dist.ProcessGroup, Counter[tuple[int, ...]]] = (
    WeakKeyDictionary()
)


class ReductionGroups:
    """The process groups that reductions use, one for each distinct set of ranks."""

    def __init__(self) -> None:
        self._groups: dict[ReduceScope, dist.ProcessGroup] = {}
        self._created: list[dist.ProcessGroup] = []

    def get(self, scope: ReduceScope) -> dist.ProcessGroup:
        """Find or create the process group of a set of ranks.

        A single mesh axis has a group already. For several axes one is created, and
        all its members have to ask for it, in the same order as for other groups.

        Args:
            scope: The ranks, and the mesh axes that span them.

        Returns:
            A group of exactly these ranks.
        """
        if scope not in self._groups:
            self._groups[scope] = self._find_or_create(scope)
        return self._groups[scope]

    def destroy(self) -> None:
        """Destroy the groups created here, and forget those that belong to meshes."""
        self._groups.clear()
        while self._created:
            group = self._created.pop()
            # Whoever destroyed the default process group destroyed this one with it.
            if dist.is_initialized():
                dist.destroy_process_group(group)

    def _find_or_create(self, scope: ReduceScope) -> dist.ProcessGroup:
        if scope.group is not None:
            return scope.group
        assert scope.mesh is not None, "ranks without a group were found on a mesh"
        if len(scope.axes) == 1:
            return scope.mesh.get_group(scope.axes[0])
        group = _create_group(scope.ranks)
        self._created.append(group)
        return group


def usable_ranks(group: object) -> tuple[int, ...]:
    """List the ranks of a process group that somebody gave us.

    Args:
        group: Perhaps what `torch.distributed.new_group` returns on ranks that it leaves
            out, which is no group at all; torch takes it for the newest there is.

    Returns:
        Global ranks in ascending order, this one included.

    Raises:
        ProcessGroupError: This rank cannot use it.
    """
    if not isinstance(group, dist.ProcessGroup):
        what = "a rank that is not a member of it"
        got = what if group == dist.GroupMember.NON_GROUP_MEMBER else repr(group)
    else:
        try:
            return tuple(sorted(dist.get_process_group_ranks(group)))
        except KeyError:
            got = "a group that was destroyed"
    raise ProcessGroupError(
        "the process group of plain parameters cannot be used",
        expected="a process group of which this rank is a member",
        got=got,
    )


def _create_group(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    """Create a group in which only its members take part.

    Args:
        ranks: Global ranks in ascending order, this one included.

    Returns:
        The group, of the default group's backend.

    Source:
        What `torch.distributed.new_group(use_local_synchronization=True)` does, but
        for the name: see Note [Names of new process groups].
    """
    default = c10d._get_default_group()  # noqa: SLF001
    backend, store = c10d._world.pg_map[default]  # noqa: SLF001
    group: dist.ProcessGroup
    group, _ = c10d._new_process_group_helper(  # noqa: SLF001
        len(ranks),
        ranks.index(dist.get_rank()),
        list(ranks),
        dist.Backend(backend),
        store,
        c10d.GroupName(_unused_name(default, ranks)),
        timeout=c10d._get_default_timeout(dist.Backend(backend)),  # noqa: SLF001
        group_desc="gradient_reduction",
    )
    c10d._world.pg_group_ranks[group] = {  # noqa: SLF001
        rank: index for index, rank in enumerate(ranks)
    }
    return group


def _unused_name(default: dist.ProcessGroup, ranks: tuple[int, ...]) -> str:
    made = _generations.setdefault(default, Counter())
    made[ranks] += 1
    digest = hashlib.sha256("_".join(map(str, ranks)).encode()).hexdigest()[:16]
    return f"gradient_reduction_{digest}_{incarnation()}_{made[ranks]}"
