"""Megatron-core 0.16.1: a reduction that does not wait for the gradients that it reduces.

    pip install --no-deps megatron-core==0.16.1
    python examples/findings/megatron_wrapping_stream.py

torch and Megatron alone, two processes, CPU. Exits with 0 if it shows it.

A GPU may run the works of two streams in any order that no wait forbids. `LateStream` plays one
such order: its works run as soon as another stream waits for them, and no earlier. Operators of
all other streams run at once.
"""

import sys
import tempfile
import warnings
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode


class Stream:
    def __init__(self, device: object = None) -> None:
        self.works = []

    def wait_stream(self, other: "Stream") -> None:
        works, other.works = other.works, []
        with use_stream(self):
            for work in works:
                work()


class LateStream(Stream):
    pass


DEFAULT = Stream()
current = [DEFAULT]  # the last one is the current stream


class use_stream:  # noqa: N801  # in the place of torch.cuda.stream
    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        current.append(self.stream)

    def __exit__(self, *unused: object) -> None:
        current.pop()


class Queue(TorchDispatchMode):
    """Queues what is added to a buffer, or scales it, on the late stream."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        is_update = func.overloadpacket in {torch.ops.aten.add_, torch.ops.aten.mul_}
        if is_update and isinstance(current[-1], LateStream):
            current[-1].works.append(partial(func, *args, **(kwargs or {})))
            return args[0]
        return func(*args, **(kwargs or {}))


def install_streams() -> None:
    torch.cuda.Stream = Stream
    torch.cuda.current_stream = lambda: current[-1]
    torch.cuda.default_stream = lambda: DEFAULT
    torch.cuda.stream = use_stream
    torch.cuda.current_device = lambda: torch.device("cpu")


def wrap(module: torch.nn.Module):
    """Wrap as Megatron's training loop does, with two instances of the optimizer."""
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
    )
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer import TransformerConfig

    class Model(DistributedDataParallel):
        def _make_backward_post_hook(self, param):
            # Autograd runs a hook of an AccumulateGrad node on the stream of the node.
            hook, made_on = super()._make_backward_post_hook(param), current[-1]

            def on_stream_of_node(*unused):
                with use_stream(made_on):
                    hook(*unused)

            return on_stream_of_node

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "alone"))
    dp, alone = mesh.get_group("dp"), mesh.get_group("alone")
    return Model(
        TransformerConfig(num_layers=1, hidden_size=1, num_attention_heads=1),
        DistributedDataParallelConfig(
            overlap_grad_reduce=True,
            use_distributed_optimizer=True,
            num_distributed_optimizer_instances=2,
        ),
        module,
        pg_collection=ProcessGroupCollection(
            dp=dp, dp_cp=dp, intra_dp_cp=alone, inter_dist_opt=dp, expt_dp=alone,
            intra_expt_dp=alone, tp=alone, pp=alone, ep=alone,
        ),
    )  # fmt: skip


def train(rank: int) -> float:
    """Return the gradient of the second step; Megatron overlaps from that step on."""
    module = torch.nn.Linear(1, 1, bias=False)
    side_stream = LateStream()
    with torch.cuda.stream(side_stream):  # megatron/training/training.py, get_model()
        model = wrap(module)
    torch.cuda.current_stream().wait_stream(side_stream)
    for _ in range(2):
        model.zero_grad_buffer()
        with Queue():
            model(torch.full((1, 1), 2.0 * (rank + 1))).backward()
            DEFAULT.wait_stream(side_stream)  # autograd waits at the end of backward
            model.finish_grad_sync()
    return module.weight.main_grad.item()


def main(rank: int, store: str, queue) -> None:
    warnings.simplefilter("ignore")
    import megatron.core.distributed  # asks for the real torch.cuda  # noqa: F401

    install_streams()
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    as_released = train(rank)
    torch.cuda.default_stream = torch.cuda.current_stream  # the patch
    queue.put((rank, as_released, train(rank)))
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    _, as_released, patched = zip(*sorted(queue.get() for _ in range(2)), strict=True)
    print("expected: 3.0 on both ranks, in every order that the waits allow")
    print(f"actual:   {as_released[0]} and {as_released[1]}, no error")
    print(f"patched:  {patched[0]} and {patched[1]}")
    sys.exit(as_released == (3.0, 3.0) or patched != (3.0, 3.0))
