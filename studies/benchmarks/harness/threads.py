"""The peer "threaded group": ranks that are threads, over torch's own threaded process group."""

import functools
import operator
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup

from syncverify.playing.program.rank_program import play_part
from syncverify.scenario.scenario import Scenario
from syncverify.sim.network.threaded_world import thread_local_world
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun


def _keep_name(register: Callable[[Any, Any], None], name: str, group: object) -> None:
    if isinstance(group, ProcessLocalGroup):
        vars(group)["kept_name"] = name
    register(name, group)


# torch asks a group for its name after it has dropped the group (`destroy_process_group`);
# its threaded groups then look where the name is no longer, and raise KeyError.
vars(c10d)["_register_process_group"] = functools.partial(
    _keep_name,
    c10d._register_process_group,  # noqa: SLF001
)
# Its metaclass is pybind11's, which in some versions refuses `type.__setattr__`.
type(ProcessLocalGroup).__setattr__(
    ProcessLocalGroup, "group_name", property(operator.attrgetter("kept_name"))
)


def play_on_threads(scenario: Scenario, subject: Subject) -> None:
    """Play the rank program of each rank on a thread of its own, and check nothing.

    Raises:
        RuntimeError: A rank raised. Other ranks may still wait for it.
    """
    num_ranks, store = scenario.mesh.num_ranks, dist.HashStore()
    ended: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()

    def program(rank: int) -> None:
        try:
            _play_rank(scenario, subject, rank, store)
        except Exception as error:  # noqa: BLE001  # is raised below
            ended.put((rank, error))
        else:
            ended.put((rank, None))

    with thread_local_world():  # which also registers the `threaded` backend
        for rank in range(num_ranks):
            threading.Thread(target=program, args=(rank,), daemon=True).start()
        for _ in range(num_ranks):
            rank, error = ended.get()
            if error is not None:
                raise RuntimeError(f"thread of rank {rank}: {error!r}") from error


def _play_rank(
    scenario: Scenario, subject: Subject, rank: int, store: dist.Store
) -> None:
    world_size = scenario.mesh.num_ranks
    dist.init_process_group("threaded", rank=rank, world_size=world_size, store=store)
    try:
        play_part(scenario, subject, rank, RankRun(), Recorder())
    finally:
        dist.destroy_process_group()
