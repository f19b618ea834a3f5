"""Train a small GPT with data and tensor parallelism, and prove that nothing changed.

    torchrun --nproc-per-node=4 examples/train_gpt.py

Four ranks form a mesh of two axes: `dp` shares the sequences of a batch, `tp` shares the
heads and neurons of each layer, by way of torch's own `parallelize_module`. Every rank
also trains an ordinary copy of the model on whole batches, and the program fails if any
of their losses or final parameters part.

Note [On which mesh]
~~~~~~~~~~~~~~~~~~~~
`GradientSynchronizer` sums a gradient over every axis on which its parameter is
replicated, on the parameter's *own* mesh. So that mesh has to have just those axes over
which ranks hold different parts of one sum:

    parameter                                   mesh      placements       summed over
    sharded over tp                             dp x tp   Replicate Shard      dp
    whole; all ranks of tp use it alike         dp        Replicate            dp
    whole; ranks of tp use it on other heads    dp x tp   Replicate Replicate  dp, tp

The second kind are positions, layer norms, and biases that a row-wise layer adds after
its sum. Backward adds up over `tp` what flows back into them, so each rank of `tp` has
the whole gradient already, and to sum it once more would double it. On the sub-mesh
`mesh["dp"]` there is no `tp` to sum over. The third kind are the norms of queries and
keys: one weight for all heads, while a rank has seen some of the heads only.

Note [Equal up to rounding]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
The same terms are added in another order: a row-wise layer adds two halves of each
product, and a gradient is the sum of those of ranks and micro-batches. A sum of n terms
is known to n roundings of 1.1e-16 (float64) of the sum of their magnitudes, and none here
has over a thousand terms, so what is left stays far below 1e-12 for as long as
training is stable. A gradient that is doubled or lost shows as 1e-5 or more by step 2.
"""

import argparse
import copy
import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from tiny_gpt import (
    GPT,
    TENSOR_PARALLEL_PLAN,
    batches,
    make_model,
    num_predictions,
    summed_loss,
    zen,
)
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate
from torch.distributed.tensor.parallel import parallelize_module
from torch.func import functional_call

from syncverify.synchronizer import GradientSynchronizer

NUM_STEPS = 40
SHOW_EVERY = 5  # steps
GLOBAL_BATCH = 16  # sequences; a multiple of the micro-batches of all ranks of dp
NUM_MICRO_BATCHES = 2
TP_SIZE = 2
# Plain gradient descent: an optimizer that normalises, such as Adam, would take the same
# steps with gradients that are twice as large, and hide what this program is to show.
LEARNING_RATE = 0.2
MAX_RELATIVE_DIFFERENCE = 1e-12


def is_used_on_other_heads(name: str) -> bool:
    """Tell whether a whole parameter gets another part of its gradient on ranks of tp."""
    return "query_norm" in name or "key_norm" in name


class DistributedTraining:
    """Trains a model of which ranks share the layers, on a share of the data each.

    Args:
        model: Equal on all ranks; its parameters are replaced.
        mesh: The axes `dp` and `tp`.
    """

    def __init__(self, model: GPT, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self.model = model
        parallelize_module(model, mesh["tp"], TENSOR_PARALLEL_PLAN)
        model.head.weight = model.tokens.weight  # torch distributes them one by one
        # How the layers want to see their weights: on the axis tp alone.
        self.layouts: dict[str, tuple[Placement, ...]] = {
            name: weight.placements
            for name, weight in model.named_parameters()
            if isinstance(weight, DTensor)
        }
        for name, weight in list(model.named_parameters()):
            replace_parameter(model, name, self.on_its_mesh(name, weight))
        model.head.weight = model.tokens.weight
        self.synchronizer = GradientSynchronizer.from_module(
            model,
            bucket_size_mb=0.05,  # tiny, so that even this model has several buckets
            require_accumulations=NUM_MICRO_BATCHES,
        )
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def on_its_mesh(self, name: str, weight: torch.Tensor) -> DTensor:
        """Put a parameter where its gradient is summed right, see Note [On which mesh]."""
        layout = self.layouts.get(name, (Replicate(),))
        local = weight.to_local() if isinstance(weight, DTensor) else weight
        if layout == (Replicate(),) and not is_used_on_other_heads(name):
            mesh, placements = self.mesh["dp"], [Replicate()]
        else:
            mesh, placements = self.mesh, [Replicate(), *layout]
        shape, stride = weight.shape, weight.stride()
        return DTensor.from_local(
            local.detach(), mesh, placements, shape=shape, stride=stride
        )

    def weight_of_layer(self, name: str, weight: DTensor) -> torch.Tensor:
        """Show a layer its part of a parameter; the gradient takes the same way back.

        Neither step communicates, in either direction: this rank's gradient reaches
        `.grad` as it is, labelled with the placements of the parameter.
        """
        local = weight.to_local()
        if name not in self.layouts:
            return local
        return DTensor.from_local(
            local,
            self.mesh["tp"],
            self.layouts[name],
            shape=weight.shape,
            stride=weight.stride(),
        )

    def predict(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (B, T, V), equal on all ranks of tp."""
        weights = {
            name: self.weight_of_layer(name, weight)
            for name, weight in self.model.named_parameters()
        }
        return functional_call(self.model, weights, (tokens,))

    def step(self, batch: torch.Tensor) -> float:
        """Take one step on a global batch; return its mean loss, equal on all ranks."""
        dp = self.mesh["dp"]
        mean_loss = torch.zeros((), dtype=torch.float64)
        share = batch.chunk(dp.size())[dp.get_local_rank()]
        for sequences in share.chunk(NUM_MICRO_BATCHES):
            # Gradients are summed, so each part divides by the size of the whole.
            loss = summed_loss(self.predict, sequences) / num_predictions(batch)
            loss.backward()  # the last one launches the sums over ranks
            mean_loss += loss.detach()
        self.synchronizer.wait()  # from here on gradients are those of the whole batch
        self.optimizer.step()
        self.synchronizer.zero_grad()
        dist.all_reduce(mean_loss, group=dp.get_group())
        return mean_loss.item()

    def parameter_difference(self, reference: nn.Module) -> float:
        """Return how far this rank's parameters are from those of another model."""
        expected = dict(reference.named_parameters())
        return max(
            largest_difference(weight.full_tensor(), expected[name])
            for name, weight in self.model.named_parameters()
        )


class ReferenceTraining:
    """Trains the same model on whole batches in one process."""

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step(self, batch: torch.Tensor) -> float:
        """Take one step; return the mean loss before it."""
        loss = summed_loss(self.model, batch) / num_predictions(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def replace_parameter(model: nn.Module, name: str, weight: torch.Tensor) -> None:
    """Exchange a parameter for another one."""
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, nn.Parameter(weight))


def largest_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest element; inf for nan."""
    with torch.no_grad():
        difference = (found - expected).abs().max() / expected.abs().max()
    return difference.nan_to_num(nan=torch.inf).item()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both trainings, side by side, as one rank sees them.

    Attributes:
        losses: Of each step, on the mesh and in one process.
        parameter_difference: The largest one after the last step, relative.
    """

    losses: list[tuple[float, float]]
    parameter_difference: float

    def loss_differences(self) -> list[float]:
        """List the relative difference of each step."""
        return [
            largest_difference(*torch.tensor([loss, expected], dtype=torch.float64))
            for loss, expected in self.losses
        ]

    def failure(self) -> str:
        """Say what differs first, or nothing if all is equal."""
        for step, difference in enumerate(self.loss_differences(), start=1):
            if difference > MAX_RELATIVE_DIFFERENCE:
                return f"the loss of step {step} differs by {difference:.1e}"
        if self.parameter_difference > MAX_RELATIVE_DIFFERENCE:
            return f"a final parameter differs by {self.parameter_difference:.1e}"
        return ""

    def table(self) -> Table:
        """Show some of the steps."""
        table = Table("step", "loss", "on one process", "difference")
        rows = zip(self.losses, self.loss_differences(), strict=True)
        for step, ((loss, expected), difference) in enumerate(rows, start=1):
            if step == 1 or step % SHOW_EVERY == 0 or step == len(self.losses):
                table.add_row(
                    str(step), f"{loss:.15f}", f"{expected:.15f}", f"{difference:.0e}"
                )
        return table


def compare(model: GPT, text: str, mesh: DeviceMesh, num_steps: int) -> Comparison:
    """Train two copies of a model, one on the mesh and one on this rank alone.

    Each rank has a reference of its own, so that no replica goes unseen.
    """
    distributed = DistributedTraining(copy.deepcopy(model), mesh)
    if dist.get_rank() == 0:
        print(distributed.synchronizer.explain())
    reference = ReferenceTraining(copy.deepcopy(model))
    with distributed.synchronizer:
        losses = [
            (distributed.step(batch), reference.step(batch))
            for batch in batches(text, GLOBAL_BATCH, num_steps)
        ]
    return Comparison(losses, distributed.parameter_difference(reference.model))


def run_rank(num_steps: int) -> str:
    """Train, and on rank 0 show the losses; return what this rank saw go wrong."""
    world_size = dist.get_world_size()
    if world_size % TP_SIZE:
        sys.exit(f"a model cut in {TP_SIZE} does not run on {world_size} ranks")
    shape = (world_size // TP_SIZE, TP_SIZE)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    text = zen()
    comparison = compare(make_model(text), text, mesh, num_steps)
    if dist.get_rank() == 0:
        Console().print(comparison.table())
        print(f"final parameters differ by {comparison.parameter_difference:.0e}")
    return comparison.failure()


def main() -> int:
    """Run one rank; return its exit code."""
    parser = argparse.ArgumentParser(description="Run under torchrun.")
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    num_steps = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        failure = run_rank(num_steps)
        if failure:
            print(f"FAILED: on rank {dist.get_rank()} {failure}", file=sys.stderr)
        elif dist.get_rank() == 0:
            print(f"EQUAL: no difference above {MAX_RELATIVE_DIFFERENCE}")
    finally:
        dist.destroy_process_group()
    return 1 if failure else 0


if __name__ == "__main__":
    exit_code = main()
    # Gloo's threads may still be giving back tensors, and DTensor's caches keep them
    # alive; a Python before 3.14 aborts when such a thread meets its shutdown.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
