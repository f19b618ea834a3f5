"""Train a small network on several ranks, and prove that it equals training on one.

    torchrun --nproc-per-node=2 examples/train_digits.py

Every rank holds all weights, as replicated DTensors, and sees its share of each batch
in two micro-batches. `GradientSynchronizer` sums the gradients over the ranks. Rank 0
also trains an ordinary copy of the network on whole batches, and the program fails if
the two ever part: in float64 their losses agree to the last digits.

What makes the sums come out right is the normalisation. The gradients are *summed*, so
each micro-batch divides its summed loss by the size of the *global* batch; the sum over
ranks and micro-batches is then the gradient of the global mean.
"""
# a script, and it talks to its user

import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from syncverify.synchronizer import GradientSynchronizer

NUM_EPOCHS = 8
GLOBAL_BATCH = 120  # a multiple of two micro-batches on each of 1, 2, 3 or 4 ranks
NUM_MICRO_BATCHES = 2
NUM_TRAINING_IMAGES = 12 * GLOBAL_BATCH
LEARNING_RATE = 0.5
MAX_RELATIVE_DIFFERENCE = 1e-12
NUM_TEST_IMAGES = 360
NOISE = 0.4  # standard deviation, where a stroke is 1

# Each digit in 5 rows of 3 pixels.
GLYPHS = """
    ### .#. ##. ##. #.# ### .## ### ### ###
    #.# ##. ..# ..# #.# #.. #.. ..# #.# #.#
    #.# .#. .#. .#. ### ##. ### .#. ### ###
    #.# .#. #.. ..# ..# ..# #.# .#. #.# ..#
    ### ### ### ##. ..# ##. ### .#. ### ##.
"""

Examples = tuple[torch.Tensor, torch.Tensor]  # images (N, 64) and labels (N,)


class DistributedTraining:
    """Trains a network of which every rank holds all weights and sees a share of data.

    Args:
        model: Equal on all ranks.
        mesh: One axis, over which the weights are replicated.
    """

    def __init__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        self.model = model
        self.mesh = mesh
        self.parameters = {
            name: nn.Parameter(distribute_tensor(weight.detach(), mesh, [Replicate()]))
            for name, weight in model.named_parameters()
        }
        weights = list(self.parameters.values())
        self.optimizer = torch.optim.SGD(weights, lr=LEARNING_RATE)
        self.synchronizer = GradientSynchronizer(
            [weights],
            bucket_size_mb=0.02,  # tiny, so that even this network has several buckets
            require_accumulations=NUM_MICRO_BATCHES,
            parameter_names={weight: name for name, weight in self.parameters.items()},
        )

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 10); gradients flow to the DTensors through `to_local`."""
        local = {name: weight.to_local() for name, weight in self.parameters.items()}
        return functional_call(self.model, local, (images,))

    def step(self, batch: Examples) -> float:
        """Take one step on a global batch; return its mean loss, equal on all ranks."""
        images, labels = (tensor.chunk(self.mesh.size()) for tensor in batch)
        rank = self.mesh.get_local_rank()
        mean_loss = torch.zeros((), dtype=torch.float64)
        for x, y in zip(
            images[rank].chunk(NUM_MICRO_BATCHES),
            labels[rank].chunk(NUM_MICRO_BATCHES),
            strict=True,
        ):
            loss = cross_entropy(self.predict(x), y, reduction="sum") / GLOBAL_BATCH
            loss.backward()  # the second one launches the sums over ranks
            mean_loss += loss.detach()
        self.synchronizer.wait()  # from here on gradients are sums over all ranks
        self.optimizer.step()
        self.synchronizer.zero_grad()
        dist.all_reduce(mean_loss, group=self.mesh.get_group())
        return mean_loss.item()


class ReferenceTraining:
    """Trains the same network on whole batches in one process."""

    def __init__(self, model: nn.Module) -> None:
        self.predict = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step(self, batch: Examples) -> float:
        """Take one step; return the mean loss before it."""
        images, labels = batch
        loss = cross_entropy(self.predict(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def make_model() -> nn.Module:
    """Build the network with the same weights on each call and each rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)).double()


def draw(count: int, seed: int) -> Examples:
    """Draw digits in the middle of 8x8 images, with noise."""
    rows = [
        [[p == "#" for p in glyph] for glyph in row.split()]
        for row in GLYPHS.split("\n")[1:-1]
    ]
    glyphs = torch.tensor(rows, dtype=torch.float64).transpose(0, 1)  # (10, 5, 3)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    images = NOISE * torch.randn(count, 8, 8, dtype=torch.float64, generator=generator)
    images[:, 1:6, 2:5] += glyphs[labels]
    return images.flatten(1), labels


def batches(examples: Examples, epoch: int) -> Iterator[Examples]:
    """Shuffle the examples, on all ranks alike, and cut them into global batches."""
    images, labels = examples
    generator = torch.Generator().manual_seed(epoch)
    for chosen in torch.randperm(len(labels), generator=generator).split(GLOBAL_BATCH):
        yield images[chosen], labels[chosen]


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the fraction of examples whose largest logit is the right one."""
    return (logits.argmax(dim=1) == labels).double().mean().item()


def refuse_difference(what: str, distributed: float, reference: float) -> None:
    """End the program if distributed training left the reference."""
    if abs(distributed - reference) > MAX_RELATIVE_DIFFERENCE * abs(reference):
        sys.exit(f"FAILED: {what} is {distributed!r}, but {reference!r} on one process")


def train(rank: int, mesh: DeviceMesh) -> None:
    """Train, and on rank 0 compare every step with the reference."""
    training = draw(NUM_TRAINING_IMAGES, seed=0)
    test_images, test_labels = draw(NUM_TEST_IMAGES, seed=1)
    distributed = DistributedTraining(make_model(), mesh)
    reference = ReferenceTraining(make_model()) if rank == 0 else None
    with distributed.synchronizer:
        for epoch in range(1, NUM_EPOCHS + 1):
            for step, batch in enumerate(batches(training, epoch), start=1):
                loss = distributed.step(batch)
                if reference:
                    expected = reference.step(batch)
                    refuse_difference(
                        f"loss of epoch {epoch} step {step}", loss, expected
                    )
            if reference:
                print(
                    f"epoch {epoch}: loss {loss:.15f}, on one process {expected:.15f}"
                )
    if reference:
        with torch.no_grad():
            found = accuracy(distributed.predict(test_images), test_labels)
            expected = accuracy(reference.predict(test_images), test_labels)
        refuse_difference("test accuracy", found, expected)
        print(f"test accuracy {found:.4f}, on one process {expected:.4f}: equal")


def main() -> None:
    """Run one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        world_size = dist.get_world_size()
        if GLOBAL_BATCH % (world_size * NUM_MICRO_BATCHES):
            sys.exit(
                f"{GLOBAL_BATCH} images cannot be shared evenly by {world_size} ranks"
            )
        mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("dp",))
        train(dist.get_rank(), mesh)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Gloo's threads may still be giving back tensors, and DTensor's caches keep them
    # alive; a Python before 3.14 aborts when such a thread meets its shutdown.
    sys.stdout.flush()
    os._exit(0)
