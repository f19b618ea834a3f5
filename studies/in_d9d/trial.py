"""Runs of d9d's trainer, with d9d's synchronizer and with ours, in processes of gloo."""

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.multiprocessing import ProcessRaisedException

from studies.in_d9d import cpu_copy, place
from studies.in_d9d.layouts import Layout
from studies.in_d9d.model import Gradients, RoundedSgd, Stage, gradients_of

AFTER_STEP = 2  # the trainer sleeps
WHOSE = ("d9d", "ours")

Steps = list[Gradients]


@dataclass(frozen=True, slots=True)
class Trial:
    """A layout that was played.

    Attributes:
        layout: The mesh and the schedule.
        gradients: Gradients before each update, by whose synchronizer it was and by rank;
            empty where the run did not end.
        error: Why a run did not end.
    """

    layout: Layout
    gradients: dict[str, list[Steps]]
    error: str = ""


def run(layouts: Sequence[Layout], copy: Path) -> list[Trial]:
    """Play layouts of one number of ranks, one after the other in the same processes.

    Args:
        layouts: Meshes and schedules.
        copy: Folder with the copy of d9d for a CPU.

    Returns:
        A trial for each layout, with the gradients or an error.
    """
    num_ranks = layouts[0].num_ranks
    error = ""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (tuple(layouts), copy, Path(folder))
        try:
            torch.multiprocessing.spawn(_play_rank, arguments, num_ranks)
        except ProcessRaisedException as raised:
            error = str(raised)
        return [_collect(layout, Path(folder), error) for layout in layouts]


def _collect(layout: Layout, folder: Path, error: str) -> Trial:
    paths = {
        whose: [_path(folder, layout, whose, n) for n in range(layout.num_ranks)]
        for whose in WHOSE
    }
    if not all(path.exists() for each in paths.values() for path in each):
        return Trial(layout, {}, error or "not played: a process ended early")
    return Trial(
        layout, {whose: [*map(torch.load, each)] for whose, each in paths.items()}
    )


def _path(folder: Path, layout: Layout, whose: str, rank: int) -> Path:
    return folder / f"{layout.name} {whose} {rank}.pt"


def _play_rank(rank: int, layouts: Sequence[Layout], copy: Path, folder: Path) -> None:
    cpu_copy.install(copy)
    with process_group(rank, layouts[0].num_ranks, folder):
        for layout in layouts:
            for whose in WHOSE:
                with contextlib.ExitStack() as stack:
                    if whose == "ours":
                        stack.enter_context(place.ours())
                    gradients = _train(layout, folder)
                torch.save(gradients, _path(folder, layout, whose, rank))


@contextlib.contextmanager
def process_group(rank: int, num_ranks: int, folder: Path) -> Any:
    """Be a rank of a group of processes, one thread each, until the block ends."""
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", store, rank=rank, world_size=num_ranks)
    yield
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def _train(layout: Layout, folder: Path) -> Steps:
    from d9d.core.dist_context import DeviceMeshParameters
    from d9d.loop.run import TrainingConfigurator

    from studies.in_d9d import providers

    found: Steps = []

    def note(stages: list[Stage]) -> None:
        parts = [gradients_of(stage) for stage in stages]
        found.append({name: each for part in parts for name, each in part.items()})

    def sleep(step: int) -> None:
        if layout.sleeps and step == AFTER_STEP:
            trainer.sleep()
            trainer.wake()

    trainer: Any = TrainingConfigurator(
        mesh=DeviceMeshParameters(**layout.axes),
        parameters=providers.trainer_config(
            str(folder / "saved"), schedule=layout.schedule, max_norm=layout.max_norm
        ),
        task_provider=lambda _: providers.Task(sleep),
        model_provider=providers.Models(note),
        data_provider=lambda context: providers.Packs(context.dist_context),
        optimizer_provider=lambda context: RoundedSgd(context.model.parameters()),
        lr_scheduler_provider=lambda _: providers.FixedRate(),
    ).configure()
    trainer.train()
    return found
