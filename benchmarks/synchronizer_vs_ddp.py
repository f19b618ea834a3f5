"""Compare a training step under GradientSynchronizer, under DDP, and without sums.

    python benchmarks/synchronizer_vs_ddp.py [--rounds 30]

Two gloo processes, one thread each; every round runs all contestants once, in rotating
order, so that whatever else the machine does falls on all of them. A DTensor parameter
costs time of its own, so there is a baseline for each type of parameter, and a ratio
compares a synchronizer with the baseline of its own type. On a machine with few cores
gloo takes them from backward: this measures overhead, and says nothing about overlap.
"""
# a script, and it talks to its user

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel

from synchronizer import GradientSynchronizer

NUM_RANKS = 2
NUM_WARM_UP_ROUNDS = 5  # DDP rebuilds its buckets in the first steps
BASELINE = {
    "GradientSynchronizer": "backward, DTensor parameters",
    "DistributedDataParallel": "backward, plain parameters",
}


def make_model(options: argparse.Namespace) -> nn.Module:
    """Build a stack of square layers, the same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Linear(options.width, options.width) for _ in range(options.layers))
    )


def distributed_model(
    options: argparse.Namespace, mesh: DeviceMesh
) -> tuple[list[nn.Parameter], Callable[[torch.Tensor], torch.Tensor]]:
    """Return replicated DTensor parameters, and a forward pass that uses them."""
    model = make_model(options)
    parameters = {
        name: nn.Parameter(distribute_tensor(weight.detach(), mesh, [Replicate()]))
        for name, weight in model.named_parameters()
    }

    def forward(x: torch.Tensor) -> torch.Tensor:
        local = {name: weight.to_local() for name, weight in parameters.items()}
        return functional_call(model, local, (x,))

    return list(parameters.values()), forward


def contestants(
    options: argparse.Namespace, mesh: DeviceMesh
) -> dict[str, Callable[[], None]]:
    """Return one training step, without optimizer, for each contestant."""
    x = torch.randn(8, options.width)
    plain = make_model(options)
    parallel = DistributedDataParallel(
        make_model(options),
        bucket_cap_mb=options.bucket_mib,
        gradient_as_bucket_view=True,
        static_graph=True,
    )
    unsynchronized, forward_unsynchronized = distributed_model(options, mesh)
    synchronized, forward_synchronized = distributed_model(options, mesh)
    synchronizer = GradientSynchronizer([synchronized], options.bucket_mib, 1)
    synchronizer.bind()

    def run_plain() -> None:
        plain.zero_grad(set_to_none=False)
        plain(x).sum().backward()

    def run_unsynchronized() -> None:
        for parameter in unsynchronized:
            if parameter.grad is not None:
                parameter.grad.to_local().zero_()
        forward_unsynchronized(x).sum().backward()

    def run_parallel() -> None:
        parallel.zero_grad(set_to_none=False)
        parallel(x).sum().backward()

    def run_synchronizer() -> None:
        synchronizer.zero_grad()
        forward_synchronized(x).sum().backward()
        synchronizer.wait()

    return {
        "backward, plain parameters": run_plain,
        "DistributedDataParallel": run_parallel,
        "backward, DTensor parameters": run_unsynchronized,
        "GradientSynchronizer": run_synchronizer,
    }


def measure(
    steps: dict[str, Callable[[], None]], num_rounds: int
) -> dict[str, list[float]]:
    """Return the milliseconds of each contestant in each round."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(NUM_WARM_UP_ROUNDS + num_rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            dist.barrier()
            start = time.perf_counter()
            steps[name]()
            if number >= NUM_WARM_UP_ROUNDS:
                times[name].append(1000 * (time.perf_counter() - start))
    return times


def report(times: dict[str, list[float]]) -> None:
    """Print medians, interquartile ranges, and ratios to the baselines."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{'step':30} {'median ms':>10} {'IQR ms':>16} {'ratio to backward':>18}")
    for name, values in times.items():
        low, _, high = statistics.quantiles(values, n=4)
        ratio = medians[name] / medians[BASELINE.get(name, name)]
        print(
            f"{name:30} {medians[name]:10.2f} {f'{low:.2f}-{high:.2f}':>16} {ratio:18.2f}"
        )
    ours, theirs = (medians[name] for name in BASELINE)
    print(f"GradientSynchronizer / DistributedDataParallel: {ours / theirs:.2f}")


def run_rank(rank: int, options: argparse.Namespace, store: str) -> None:
    """Measure on one rank; rank 0 prints."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=NUM_RANKS
    )
    mesh = init_device_mesh("cpu", (NUM_RANKS,), mesh_dim_names=("dp",))
    times = measure(contestants(options, mesh), options.rounds)
    if rank == 0:
        report(times)
    dist.destroy_process_group()
    # Gloo's threads may still be giving back tensors, and DTensor's caches keep them
    # alive; a Python before 3.14 aborts when such a thread meets its shutdown.
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Parse options and start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--bucket-mib", type=float, default=25.0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (options, str(Path(folder) / "store")), nprocs=NUM_RANKS)


if __name__ == "__main__":
    main()
