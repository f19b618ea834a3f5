"""torch's LocalTensor: one program plays all ranks, on tensors that hold a part for each rank.

The rank program runs once. Starting values and contributions differ between ranks, so they
are made as `LocalTensor`; every operator and every collective then works on all parts.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed import _local_tensor
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.testing._internal.distributed import fake_pg

from studies.comparison.one_worker import Answer, packed, serve
from syncverify.backends.faults import raised_fault
from syncverify.processes.wire import Wire
from syncverify.program import leftovers, model
from syncverify.program.rank_program import play
from syncverify.program.subject_error import SubjectRaisedError
from syncverify.scenario import step_plan
from syncverify.scenario.contributions import contribution, with_overflow
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun

_FOLDER = str(Path(_local_tensor.__file__).parent)
# Words of errors that say that a tensor has parts for several ranks.
_OF_SEVERAL_RANKS = ("invalid python storage", "LocalTensor", "LocalIntNode")


class OneProgramError(Exception):
    """Ranks do different things, so one program cannot play them all."""


def play_on_local_tensors(
    scenario: Scenario, subject: Subject, _: Subject | None = None
) -> Answer:
    """Play a scenario in one program.

    Args:
        scenario: Mesh, parameters and steps of the program.
        subject: The synchronizer.

    Returns:
        The answer; a remark where LocalTensor cannot play the scenario or the subject.
    """
    num_ranks = scenario.mesh.num_ranks
    store = fake_pg.FakeStore()
    dist.init_process_group("fake", rank=0, world_size=num_ranks, store=store)
    result = RankRun()
    try:
        with _as_all_ranks(LocalTensorMode(num_ranks)):
            cpu = torch.device("cpu")
            play(
                scenario,
                subject,
                rank=0,
                device=cpu,
                result=result,
                recorder=Recorder(),
            )
    except SubjectRaisedError as error:
        seen = packed(_parts(result, num_ranks))
        if _is_a_limit(error.original):
            return Answer(seen, remarks=(_cannot(error.original),))
        return Answer(seen, raised_fault(error, 0))
    except Exception as error:  # noqa: BLE001  # the place is younger than our program
        return Answer(packed([RankRun()] * num_ranks), remarks=(_cannot(error),))
    finally:
        dist.destroy_process_group()
    return Answer(packed(_parts(result, num_ranks)))


@contextmanager
def _as_all_ranks(mode: LocalTensorMode) -> Iterator[None]:
    """Make the program of rank 0 that of all ranks."""
    start, used = model.start_value, step_plan.used_parameters

    def start_values(scenario: Scenario, spec: ParameterSpec, _: int) -> torch.Tensor:
        return mode.rank_map(lambda rank: start(scenario, spec, rank))

    def contributions(
        scenario: Scenario, spec: ParameterSpec, **at: Any
    ) -> torch.Tensor:
        def of_rank(rank: int) -> torch.Tensor:
            here = {**at, "rank": rank}
            # Its values are cached, and LocalTensor keeps the tensors that it is given.
            own = contribution(scenario, spec, **here).clone()
            return with_overflow(own, scenario, spec, **here)

        return mode.rank_map(of_rank)

    def used_parameters(scenario: Scenario, _: int, *when: int) -> Any:
        first, *others = (used(scenario, rank, *when) for rank in sorted(mode.ranks))
        if any(each != first for each in others):
            raise OneProgramError("ranks use different parameters")
        return first

    with ExitStack() as patches:
        patches.enter_context(mode)
        for owner, name, replaced in (
            (model, "start_value", start_values),
            (model, "contribution", contributions),
            (model, "with_overflow", lambda constant, *_, **__: constant),
            (step_plan, "used_parameters", used_parameters),
            # A LocalTensor has no address, and this place judges values alone.
            (leftovers, "_sharing_storage", lambda _: ()),
        ):
            patches.enter_context(mock.patch.object(owner, name, replaced))
        yield


def _parts(result: RankRun, num_ranks: int) -> list[RankRun]:
    """Return the observations of each rank."""

    def part(tensor: torch.Tensor | None, rank: int) -> torch.Tensor | None:
        if isinstance(tensor, LocalTensor):
            return tensor._local_tensors[rank]  # noqa: SLF001  # the class has no method
        return tensor

    return [
        RankRun(
            [
                replace(
                    each,
                    misfits={},
                    gradients={n: part(g, rank) for n, g in each.gradients.items()},
                )
                for each in result.observations
            ]
        )
        for rank in range(num_ranks)
    ]


def _is_a_limit(error: BaseException) -> bool:
    """Tell whether LocalTensor raised, or an operation that it does not have."""
    if isinstance(error, OneProgramError):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_inside = trace is not None and trace.tb_frame.f_code.co_filename.startswith(
        _FOLDER
    )
    return is_inside or any(word in str(error) for word in _OF_SEVERAL_RANKS)


def _cannot(error: BaseException) -> str:
    return f"cannot be played: {type(error).__name__}: {error}"


def main(wire: Wire) -> None:
    """Serve the owner of this process, which `OneWorker` has started."""
    serve(wire, play_on_local_tensors)
