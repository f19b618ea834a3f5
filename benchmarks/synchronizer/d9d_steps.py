"""A training step under the synchronizer and under that of d9d, on the same DTensors.

Both sum, neither scales, and both zero in place; ours is measured with gradients that are
set to None as well, which d9d has no way to do. d9d's is made for CUDA, where its
collectives do not block the host; on CPU they do, inside of the hooks. Its streams are
made harmless for it (`virtual_cuda`).
"""

import importlib
import importlib.util
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.measure import Measure, ratio
from benchmarks.rounds import (
    Contestant,
    Rounds,
    Times,
    slowest_rank,
    take_turns,
    timed,
)
from benchmarks.synchronizer import virtual_cuda
from benchmarks.synchronizer.models import Training, replicated_training
from benchmarks.synchronizer.ranks import run_on_ranks
from benchmarks.synchronizer.sizes import Sizes
from synchronizer import GradientSynchronizer

NUM_RANKS = 2
OURS = "GradientSynchronizer"
OURS_NONE = "GradientSynchronizer, grads to None"
D9D = "d9d"
TARGET = 0.8
# The one with several parameters in each of several buckets.
HEADLINE_MODEL = "medium"
HOW_TO_INSTALL = "not installed; pip install --no-deps d9d==0.24.0"


def measure_d9d(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Compare steps on all models, or say that d9d is missing."""
    keys: dict[str, tuple[str, ...]] = {
        label: ("step_vs_d9d_by_model", label) for label in sizes.models
    }
    keys[HEADLINE_MODEL] = ("step_vs_d9d",)
    if importlib.util.find_spec("d9d") is None:
        return [Measure(k, D9D, TARGET, note=HOW_TO_INSTALL) for k in keys.values()]
    by_rank = run_on_ranks(NUM_RANKS, _times_by_model, sizes, rounds)
    times = {label: slowest_rank([t[label] for t in by_rank]) for label in keys}
    return [
        *(ratio(k, times[m], OURS, D9D, target=TARGET) for m, k in keys.items()),
        *(
            ratio(("step_vs_d9d_to_none", m), times[m], OURS_NONE, D9D, target=TARGET)
            for m in keys
        ),
    ]


def _times_by_model(sizes: Sizes, rounds: Rounds) -> dict[str, Times]:
    virtual_cuda.install()
    mesh = init_device_mesh("cpu", (NUM_RANKS,), mesh_dim_names=("replicate",))
    return {
        label: take_turns(
            {
                OURS: _ours(replicated_training(size, mesh), sizes.d9d_bucket_mib),
                OURS_NONE: _ours(
                    replicated_training(size, mesh),
                    sizes.d9d_bucket_mib,
                    set_to_none=True,
                ),
                D9D: _d9d(replicated_training(size, mesh), sizes.d9d_bucket_mib),
            },
            rounds,
            line_up=dist.barrier,
        )
        for label, size in sizes.models.items()
    }


def _ours(
    training: Training, bucket_mib: float, *, set_to_none: bool = False
) -> Contestant:
    synchronizer = GradientSynchronizer([training.parameters], bucket_mib, 1)
    synchronizer.bind()

    def step() -> None:
        training.backward()
        synchronizer.wait()
        synchronizer.zero_grad(set_to_none=set_to_none)

    return timed(step)


def _d9d(training: Training, bucket_mib: float) -> Contestant:
    # Imported late: it may not be there, and it needs the streams above.
    theirs: Any = importlib.import_module("d9d.internals.grad_sync")
    synchronizer = theirs.GradientSynchronizer([training.parameters], bucket_mib)
    synchronizer.bind()
    synchronizer.set_required_accumulations(1)

    def step() -> None:
        training.backward()
        synchronizer.wait()
        synchronizer.zero_grad()

    return timed(step)
