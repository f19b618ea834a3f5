"""Autograd works on the streams that torch's engine would use."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.utils.checkpoint import checkpoint

from syncverify.sim.device.streams import own_streams


def streams_seen(parameter: torch.Tensor) -> list[str]:
    seen: list[str] = []
    parameter.register_post_accumulate_grad_hook(
        lambda _: seen.append(torch.cuda.current_stream().name)
    )
    return seen


def test_accumulation_stays_on_the_stream_of_its_node(lines_of) -> None:
    def program(_: int) -> None:
        side = torch.cuda.Stream()
        leaf = nn.Parameter(torch.ones(2))
        seen = streams_seen(leaf)
        held = [leaf.view_as(leaf)]  # its graph keeps the node of the default stream
        for _ in range(2):
            with torch.cuda.stream(side):
                with own_streams().recorder.computing_loss([leaf]):
                    loss = (leaf * 3).sum()
                loss.backward()
            held.clear()
            del loss
        assert seen == ["default", "stream 1"]

    lines = lines_of(program)
    waits = [line for line in lines if line.startswith("default waits")]
    assert waits == ["default waits for 1"]  # the producer was on the side
    assert "stream 1 waits for 2" in lines  # the join of the first backward


def test_a_node_that_a_subject_makes_beside_the_default_stream_stays_there(
    traced,
) -> None:
    """A hook inherited a side stream; the reduction was ordered after another.

    NVIDIA/Megatron-LM#3670
    """

    def program(_: int) -> None:
        leaf = nn.Parameter(torch.ones(2))
        seen = streams_seen(leaf)
        with torch.cuda.stream(torch.cuda.Stream()):
            held = leaf.expand_as(leaf).grad_fn.next_functions[0][0]
        (leaf * 3).sum().backward()
        del held
        (leaf * 3).sum().backward()
        assert seen == ["stream 1", "default"]

    traced(program)


@pytest.mark.parametrize("owner", ["reducer", "user"])
def test_a_use_that_backward_recomputes_is_over_with_that_backward(
    traced, owner: str
) -> None:
    """A checkpoint used the leaf on its stream again; a later node of the leaf was put there."""

    def program(_: int) -> None:
        layer = nn.Linear(2, 2)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            out = checkpoint(layer, torch.ones(1, 2), use_reentrant=False)
        out.sum().backward()
        del out  # no graph holds the first node any longer
        seen = streams_seen(layer.weight)
        if owner == "reducer":
            kept: object = nn.parallel.DistributedDataParallel(layer, init_sync=False)
        else:
            kept = layer.weight.view_as(layer.weight)
        with torch.cuda.stream(side):
            layer(torch.ones(1, 2)).sum().backward()
        assert seen == ["default"]
        del kept

    traced(program)


def test_a_node_waits_for_its_gradient_before_a_hook_of_its_tensor_reads_it(
    lines_of,
) -> None:
    def program(_: int) -> None:
        leaf = nn.Parameter(torch.ones(2))
        with torch.cuda.stream(torch.cuda.Stream()):
            term = (leaf * 3).sum()
        term.register_hook(lambda gradient: gradient / 2)
        (term * 2).backward()

    lines = lines_of(program)
    (division,) = (k for k, line in enumerate(lines) if "div" in line)
    fed = next(k for k, line in enumerate(lines) if "stream 1 waits" in line)
    assert fed < division, lines


def test_what_a_hook_makes_current_ends_with_its_node(traced) -> None:
    def program(_: int) -> None:
        side = torch.cuda.Stream()
        first, second = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        first.register_post_accumulate_grad_hook(lambda _: torch.cuda.set_stream(side))
        second.register_post_accumulate_grad_hook(lambda _: torch.cuda.set_stream(side))
        seen = streams_seen(first), streams_seen(second)
        (first * second).sum().backward()
        assert seen == (["stream 1"], ["stream 1"])
        assert torch.cuda.current_stream() == torch.cuda.default_stream()

    traced(program)


def test_final_callbacks_run_after_the_join(lines_of) -> None:
    def program(_: int) -> None:
        side = torch.cuda.Stream()
        leaf = nn.Parameter(torch.ones(2))
        engine = torch.autograd.Variable._execution_engine

        def callback() -> None:
            assert torch.cuda.current_stream() == torch.cuda.default_stream()
            torch.cuda.current_stream().record_event()

        leaf.register_post_accumulate_grad_hook(
            lambda _: engine.queue_callback(callback)
        )
        with torch.cuda.stream(side):
            loss = (leaf * 3).sum()
        loss.backward()

    orders = [line for line in lines_of(program) if "mark" in line or "waits" in line]
    assert orders[2:] == [
        "mark 2 in stream 1",
        "default waits for 2",
        "mark 3 in default",
    ]


@pytest.mark.parametrize(
    ("numel", "placement"), [(2, Replicate()), (0, Shard(0))], ids=["whole", "empty"]
)
def test_a_dtensor_leaf_has_the_stream_of_its_first_use(
    traced, numel: int, placement: Placement
) -> None:
    def program(_: int) -> None:
        mesh = init_device_mesh("cpu", (1,))
        local = DTensor.from_local(
            torch.ones(numel), mesh, [placement], run_check=False
        )
        leaf = nn.Parameter(local)
        seen = streams_seen(leaf)
        recorder = own_streams().recorder
        with torch.cuda.stream(torch.cuda.Stream()), recorder.computing_loss([leaf]):
            loss = leaf.to_local().sum()
        loss.backward()
        assert seen == ["stream 1"]

    traced(program)


def test_a_leaf_whose_memory_was_freed_has_the_stream_of_its_use(traced) -> None:
    """FSDP2 frees the memory of whole parameters when forward has used them."""

    def program(_: int) -> None:
        leaf = nn.Parameter(torch.ones(3))
        seen = streams_seen(leaf)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            loss = leaf.sum()
            leaf.untyped_storage().resize_(0)
        leaf.untyped_storage().resize_(12)
        loss.backward()
        assert seen == ["stream 1"]

    traced(program)


def test_a_gradient_that_is_asked_for_is_waited_for(lines_of) -> None:
    def program(_: int) -> None:
        leaf = nn.Parameter(torch.ones(2))
        held = leaf.view_as(leaf)  # and with it the node, on the default stream
        recorder = own_streams().recorder
        with torch.cuda.stream(torch.cuda.Stream()), recorder.computing_loss([leaf]):
            loss = (leaf * 3).sum()
        torch.autograd.grad(loss, leaf)
        del held

    lines = lines_of(program)
    assert "mark 2 in stream 1" in lines
    assert "default waits for 2" in lines
