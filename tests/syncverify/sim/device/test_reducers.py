"""Nodes and waits that DistributedDataParallel's C++ code makes are those of torch on CUDA."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.nn.parallel import DistributedDataParallel

from syncverify.faces.simulation.simulate import simulate
from syncverify.judge.ordering.races import judge_orderings
from tests.free_programs import play

_Future = torch.futures.Future[torch.Tensor]
Wrap = Callable[[nn.Linear], Any]
Read = Callable[[torch.Tensor], object]


def num_races(program: Callable[[], object]) -> int:
    machine = play(lambda _: program(), 2, device="cuda")
    found = judge_orderings([recorder.trace for recorder in machine.recorders])
    assert found.early_frees == ()
    return len(found.races)


def with_nodes(layer: nn.Linear) -> nn.Linear:
    """Keep the AccumulateGrad nodes, as hooks in the manner of Megatron do."""
    layer.nodes = [  # type: ignore[assignment]
        each.expand_as(each).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        for each in layer.parameters()
    ]
    return layer


def with_graph(layer: nn.Linear) -> nn.Linear:
    layer.graph = torch.cat([layer.weight, layer.weight]) + layer.bias
    return layer


@pytest.mark.parametrize(
    ("wrap", "read"),
    [
        (DistributedDataParallel, torch.isnan),
        (replicate, torch.isnan),
        (with_graph, torch.isnan),
        (with_nodes, lambda weight: weight.detach().clone()),
        (with_nodes, lambda weight: weight * 2),
    ],
)
@pytest.mark.parametrize("waits", [True, False])
def test_a_kept_node_does_not_order_a_stream_that_reads_the_leaf(
    wrap: Wrap, read: Read, *, waits: bool
) -> None:
    """Only the program's wait orders the copy of other memory on the side stream."""

    def program() -> torch.Tensor:
        layer = nn.Linear(8, 8).cuda()
        model = wrap(layer)
        model(torch.ones(1, 8, device="cuda"))  # `replicate` makes its reducer here
        side, buffer = torch.cuda.Stream(), torch.zeros(8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            buffer.add_(1)
            read(layer.weight)
        model(torch.ones(2, 8, device="cuda")).sum().backward()
        if waits:
            torch.cuda.current_stream().wait_stream(side)
        return buffer * 2

    assert num_races(program) == (0 if waits else 2)


def test_a_node_that_is_made_beside_keeps_its_stream_in_a_forward_elsewhere() -> None:
    def program() -> None:
        seen = []
        layer, side = nn.Linear(2, 2).cuda(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model = DistributedDataParallel(layer, init_sync=False)
        layer.weight.register_post_accumulate_grad_hook(
            lambda _: seen.append(torch.cuda.current_stream() == side)
        )
        for _ in range(2):
            model(torch.ones(2, 2, device="cuda")).sum().backward()
        assert seen == [True, True]

    play(lambda _: program(), 2, device="cuda")


def train(register: Callable[[Any], None], **options: Any) -> torch.Tensor:
    layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4))).cuda()
    model = DistributedDataParallel(layers, bucket_cap_mb=0.005, **options)
    register(model)
    for _ in range(2):
        layers.zero_grad()
        model(torch.ones(2, 32, device="cuda")).sum().backward()
    weight = layers[0].weight
    assert isinstance(weight, torch.Tensor)
    return weight.grad.sum()


def by_hook(hook: Callable[..., Any]) -> Callable[[Any], None]:
    return lambda model: model.register_comm_hook(None, hook)


def with_scratch(scratch: Callable[[Any], torch.Tensor]) -> Callable[..., Any]:
    def hook(_: object, bucket: dist.GradBucket) -> _Future:
        wire = scratch(bucket)
        torch.div(bucket.buffer(), dist.get_world_size(), out=wire)
        future = dist.all_reduce(wire, async_op=True).get_future()
        return future.then(lambda _: bucket.buffer().copy_(wire))

    return hook


def two_collectives(_: object, bucket: dist.GradBucket) -> _Future:
    parts = bucket.buffer().new_zeros(2, (bucket.buffer().numel() + 1) // 2)
    parts.view(-1)[: bucket.buffer().numel()].copy_(bucket.buffer())
    own = torch.empty_like(parts[0])
    reduced = dist.reduce_scatter(own, [*parts], async_op=True).get_future()

    def gather(_: object) -> torch.Tensor:
        dist.all_gather([*parts], own, async_op=True).get_future().wait()
        return bucket.buffer().copy_(parts.view(-1)[: bucket.buffer().numel()] / 2)

    return reduced.then(gather)


RIGHT: dict[str, tuple[Callable[[Any], None], dict[str, Any]]] = {
    "no_hook": (lambda _: None, {}),
    "views": (lambda _: None, {"gradient_as_bucket_view": True}),
    "static_graph": (lambda _: None, {"static_graph": True}),
    "own_scratch": (by_hook(with_scratch(lambda bucket: torch.empty_like(bucket.buffer()))),
        {}),
    "two_collectives": (by_hook(two_collectives), {}),
    "built_in": (
        lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
        {}),
}  # fmt: skip


@pytest.mark.parametrize(("register", "options"), RIGHT.values(), ids=RIGHT)
def test_a_right_hook_has_no_race(
    register: Callable[[Any], None], options: dict[str, Any]
) -> None:
    assert num_races(lambda: train(register, **options)) == 0


def test_one_scratch_buffer_for_all_buckets_is_a_race() -> None:
    def program() -> torch.Tensor:
        scratch = torch.empty(8192, device="cuda")
        hook = with_scratch(lambda bucket: scratch[: bucket.buffer().numel()])
        return train(by_hook(hook))

    assert num_races(program) > 0


def test_a_hook_that_waits_for_nothing_is_a_race() -> None:
    def hook(_: object, bucket: dist.GradBucket) -> _Future:
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        done = _Future()
        done.set_result(future.value()[0])
        return done

    assert num_races(lambda: train(by_hook(hook))) > 0


def test_the_built_in_hook_with_a_callback_in_cpp_is_refused() -> None:
    kind = dist.BuiltinCommHookType.FP16_COMPRESS

    def program() -> torch.Tensor:
        return train(lambda model: model._register_builtin_comm_hook(kind))

    assert "fp16_compress_hook" in str(simulate(program, 2).refused)


@pytest.mark.skipif(
    not hasattr(dist.Reducer, "_finalize_backward_manual"), reason="since torch 2.15"
)
@pytest.mark.parametrize("reads_early", [True, False])
def test_a_backward_that_is_finalized_by_hand_orders_there(
    *, reads_early: bool
) -> None:
    def program() -> None:
        layer = nn.Linear(8, 8).cuda()
        model: Any = DistributedDataParallel(layer, gradient_as_bucket_view=True)
        model.require_manual_backward_finalization = True
        for _ in range(2):
            model(torch.ones(2, 8, device="cuda")).sum().backward()
            if reads_early:
                layer.weight.grad.mul(2)
            model.finalize_backward()
            layer.weight.grad.mul(2)

    assert (num_races(program) > 0) is reads_early
