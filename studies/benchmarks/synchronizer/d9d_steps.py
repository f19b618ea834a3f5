"""A training step under the synchronizer and under that of d9d, on the same DTensors.

Both sum, neither scales, and both zero in place. Ours is measured again with gradients that
are set to None, which d9d does not offer. The synchronizer of d9d is made for CUDA, where
its collectives do not block the host; on CPU they block it inside the hooks. Its streams
are replaced by streams that do nothing (`idle_streams`).

The limit, as in Note [The measured step], says how much of a step of d9d a synchronizer can save.
"""

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from studies.benchmarks.measure import Measure, ratio
from studies.benchmarks.rounds import Contestant, Rounds, Times, take_turns, timed
from studies.benchmarks.synchronizer.models import Training, replicated_training
from studies.benchmarks.synchronizer.ranks import times_of_ranks
from studies.benchmarks.synchronizer.sizes import ModelSize, Sizes
from studies.benchmarks.synchronizer.steps import (
    LIMIT,
    NUM_RANKS,
    OURS,
    one_message,
    synchronized,
)
from studies.stand_ins import idle_streams
from syncverify.synchronizer import SynchronizerConfig

D9D = "d9d"
TARGET = 0.8
# The model with several buckets, and several parameters in each.
HEADLINE_MODEL = "medium"
HOW_TO_INSTALL = "not installed; pip install --no-deps d9d==0.24.0"


def measure_d9d(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Compare steps on all models, or note that d9d is missing."""
    keys: dict[str, tuple[str, ...]] = {
        label: ("step_vs_d9d_by_model", label) for label in sizes.models
    }
    keys[HEADLINE_MODEL] = ("step_vs_d9d",)
    if importlib.util.find_spec("d9d") is None:
        return [Measure(k, D9D, TARGET, note=HOW_TO_INSTALL) for k in keys.values()]
    zeros, nones = (
        times_of_ranks(
            NUM_RANKS, partial(_times_by_model, set_to_none=set_to_none), sizes, rounds
        )
        for set_to_none in (False, True)
    )
    return [
        *(ratio(k, zeros[m], OURS, D9D, target=TARGET) for m, k in keys.items()),
        *(
            ratio(("step_vs_d9d_to_none", m), nones[m], OURS, D9D, target=TARGET)
            for m in keys
        ),
        *(
            ratio(("limit_vs_d9d", m), zeros[m], LIMIT, D9D, target=TARGET)
            for m in keys
        ),
    ]


def _times_by_model(
    sizes: Sizes, rounds: Rounds, *, set_to_none: bool
) -> dict[str, Times]:
    idle_streams.install()
    mesh = init_device_mesh("cpu", (NUM_RANKS,), mesh_dim_names=("replicate",))
    return {
        label: take_turns(
            _contestants(size, mesh, sizes.d9d_bucket_mib, set_to_none=set_to_none),
            rounds,
            line_up=dist.barrier,
        )
        for label, size in sizes.models.items()
    }


def _contestants(
    size: ModelSize, mesh: DeviceMesh, bucket_mib: float, *, set_to_none: bool
) -> dict[str, Contestant]:
    ours, theirs = (replicated_training(size, mesh) for _ in range(2))
    config = SynchronizerConfig()
    contestants = {
        OURS: synchronized(ours, bucket_mib, config, set_to_none=set_to_none),
        D9D: _d9d(theirs, bucket_mib),
    }
    if not set_to_none:  # d9d zeros in place, and so does the limit
        training = replicated_training(size, mesh)
        contestants[LIMIT] = _limit(training, one_message(size))
    return contestants


def _limit(
    training: Training, exchange: Callable[[list[nn.Parameter]], None]
) -> Contestant:
    def step() -> None:
        training.backward()
        exchange(training.parameters)
        for parameter in training.parameters:
            cast("DTensor", parameter.grad).to_local().zero_()

    return timed(step)


def _d9d(training: Training, bucket_mib: float) -> Contestant:
    # Imported late: d9d may be missing, and needs the streams that were replaced above.
    theirs: Any = importlib.import_module("d9d.internals.grad_sync")
    synchronizer = theirs.GradientSynchronizer([training.parameters], bucket_mib)
    synchronizer.bind()
    synchronizer.set_required_accumulations(1)

    def step() -> None:
        training.backward()
        synchronizer.wait()
        synchronizer.zero_grad()

    return timed(step)
