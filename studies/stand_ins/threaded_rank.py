"""A rank that is a thread, over torch's own threaded process group."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup

from syncverify.program.rank_program import play
from syncverify.scenario.scenario import Scenario
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


def play_threaded_rank(
    scenario: Scenario, subject: Subject, rank: int, store: dist.Store, result: RankRun
) -> None:
    """Play the rank program on the calling thread; all ranks have one store.

    Call it inside `thread_local_world()`, which registers the `threaded` backend. The
    trace of the result holds calls alone: torch's threaded group shows its collectives to
    no recorder.
    """
    world_size = scenario.mesh.num_ranks
    dist.init_process_group("threaded", rank=rank, world_size=world_size, store=store)
    try:
        play(
            scenario,
            subject,
            rank=rank,
            device=torch.device("cpu"),
            result=result,
            recorder=Recorder(),
        )
    finally:
        dist.destroy_process_group()
