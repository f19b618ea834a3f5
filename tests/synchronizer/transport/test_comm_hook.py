"""Reductions that a user's hook does, and the hooks that are shipped."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.futures import Future

from syncverify.synchronizer import (
    CommHookError,
    GradientSynchronizer,
    HookBucket,
    InvalidArgumentError,
    StepFailedError,
    SynchronizerConfig,
)
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.programs import accumulate, lines, parameter

KIB_MB = 2**-10


def replicated(numel: int) -> nn.Parameter:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parameter(mesh, numel=numel)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def with_hook(hook, group, size_mb: float = 1) -> GradientSynchronizer:
    names = {each: "abcd"[index] for index, each in enumerate(group)}
    return GradientSynchronizer(
        [group],
        size_mb,
        1,
        parameter_names=names,
        config=SynchronizerConfig(comm_hook=hook, rebuild=False),
    )


def test_a_hook_sees_each_shared_bucket_once_in_launch_order(ranks) -> None:
    def program(rank: int) -> None:
        seen = []

        def hook(bucket: HookBucket) -> Future[torch.Tensor]:
            views = [view.tolist() for view in bucket.views]
            seen.append((bucket.index, bucket.names, bucket.is_last, views))
            assert dist.get_process_group_ranks(bucket.group) == [0, 1]
            return bf16_error_feedback(bucket)

        a, b, c = group = [replicated(n) for n in (2, 256, 3)]
        group.append(nn.Parameter(torch.zeros(2)))  # stays local
        with with_hook(hook, group, KIB_MB) as sums:
            for _ in range(2):
                for each in (c, b, a):
                    accumulate(each, torch.full((each.numel(),), rank + 1.0))
                group[-1].sum().backward()
                sums.wait()
                for each in (a, b, c):
                    assert each.grad.to_local().eq(3).all()
                assert group[-1].grad.eq(1).all()
                sums.zero_grad()
        value = rank + 1.0
        one_step = [
            (1, ("c",), False, [[value] * 3]),
            (2, ("b",), False, [[value] * 256]),
            (3, ("a",), True, [[value] * 2]),
        ]
        assert seen == one_step * 2

    ranks.run(2, program)


def in_place(bucket: HookBucket) -> Future[torch.Tensor]:
    work = dist.all_reduce(bucket.buffer, group=bucket.group, async_op=True)
    sums: Future[torch.Tensor] = work.get_future().then(lambda _: bucket.buffer)
    return sums


def elsewhere(bucket: HookBucket) -> Future[torch.Tensor]:
    double = bucket.buffer.double()
    dist.all_reduce(double, group=bucket.group)
    return done(double)


@pytest.mark.parametrize("hook", [in_place, elsewhere])
def test_the_sums_may_be_in_the_buffer_or_elsewhere(ranks, hook) -> None:
    def program(rank: int) -> list[float]:
        a = replicated(3)
        with with_hook(hook, [a]) as sums:
            memory = a.grad.to_local().data_ptr()
            accumulate(a, torch.arange(3) + 10.0 * rank)
            sums.wait(scale=2)
            assert a.grad.to_local().data_ptr() == memory
            return a.grad.to_local().tolist()

    assert ranks.run(2, program) == [[20, 24, 28]] * 2


def views_alone(bucket: HookBucket) -> Future[torch.Tensor]:
    """Reduce the views of parameters, and leave anything between them."""
    sums = torch.full_like(bucket.buffer, 7)
    for view in bucket.views:
        offset = view.storage_offset() - bucket.buffer.storage_offset()
        dist.all_reduce(view, group=bucket.group)
        sums.as_strided(view.shape, view.stride(), offset).copy_(view)
    return done(sums)


@pytest.mark.parametrize("unused", ["zeros", "keep_none"])
def test_a_hook_may_leave_what_lies_between_the_gradients(ranks, unused) -> None:
    def program(rank: int) -> list[Any]:
        a, b, _ = group = [replicated(numel) for numel in (3, 2, 5)]
        config = SynchronizerConfig(comm_hook=views_alone, unused=unused)
        with GradientSynchronizer([group], 1, 1, config=config) as sums:
            accumulate(a, torch.tensor([1.0, 2.0, 3.0]))
            if rank:
                accumulate(b, torch.tensor([4.0, 4.0]))
            sums.wait()
            found = [
                None if e.grad is None else e.grad.to_local().tolist() for e in group
            ]
            return [*found, sums.grad_norm().item() ** 2]

    nothing = None if unused == "keep_none" else [0] * 5
    squares = pytest.approx(4 + 16 + 36 + 16 + 16)
    assert ranks.run(2, program) == [[[2, 4, 6], [4, 4], nothing, squares]] * 2


def explained(what: str, got: str) -> list[str]:
    return [
        f"the comm hook {what} for bucket 0",
        "  expected: a future of a tensor of shape (32,) on cpu",
        f"  got:      {got}",
        "  where:    rank 0 of 2, bucket 0",
        f"  hint: {CommHookError.hint}",
    ]


def raising(_: HookBucket) -> Future[torch.Tensor]:
    raise KeyError("scale")


IN_BACKWARD = [
    (raising, "raised", "KeyError: 'scale'"),
    (lambda bucket: bucket.buffer, "returned no future", "Tensor"),
]
IN_WAIT = [
    (lambda _: done(3), "returned a future of no tensor", "int"),
    (
        lambda bucket: done(bucket.buffer[:5]),
        "returned a future of another tensor",
        "a tensor of shape (5,) on cpu",
    ),
    (
        lambda bucket: done(bucket.buffer.to("meta")),
        "returned a future of another tensor",
        "a tensor of shape (32,) on meta",
    ),
]


FAILING = [
    *((*case, call) for case in IN_BACKWARD for call in ("backward", "flush")),
    *((*case, "wait") for case in IN_WAIT),
]


@pytest.mark.parametrize(("hook", "what", "got", "call"), FAILING)
def test_a_hook_without_sums_is_refused_by_the_call_that_needs_them(
    two_ranks, hook, what: str, got: str, call: str
) -> None:
    a = replicated(3)
    with with_hook(hook, [a]) as sums:
        bring = partial(accumulate, a, torch.ones(3))
        if call == "flush":
            sums.set_required_accumulations(2)
        if call != "backward":
            bring()
        with pytest.raises(CommHookError) as caught:
            {"backward": bring, "flush": sums.flush, "wait": sums.wait}[call]()
        assert lines(caught) == explained(what, got)
        with pytest.raises(StepFailedError):
            sums.wait()
        begin_anew = sums.reset if call == "wait" else sums.zero_grad
        begin_anew()
        assert a.grad.to_local().eq(0).all()


FEEDBACK = {"comm_hook": bf16_error_feedback}


def sums_of(gradients: list[torch.Tensor], **options: Any) -> list[torch.Tensor]:
    """Reduce one gradient a step."""
    found, config = [], SynchronizerConfig(**options)
    a = replicated(len(gradients[0]))
    with GradientSynchronizer([[a]], 1, 1, config=config) as sums:
        for gradient in gradients:
            accumulate(a, gradient)
            sums.wait()
            found.append(a.grad.to_local().clone())
            sums.zero_grad()
    return found


def test_other_values_are_rounded_once_a_rank_and_once_in_the_sum(ranks) -> None:
    values = torch.randn(2, 200, generator=torch.Generator().manual_seed(0))

    def program(rank: int) -> None:
        (found,) = sums_of([values[rank]], **FEEDBACK)
        exact = values.double().sum(dim=0)
        # fl(fl(a) + fl(b)) with unit roundoff u = 2**-8:
        # |error| <= (|a| + |b|) (2 u + u**2).
        bound = values.double().abs().sum(dim=0) * (2 * 2**-8 + 2**-16)
        error = (found.double() - exact).abs()
        assert error.le(bound).all()
        assert error.gt(0).any()

    ranks.run(2, program)


@pytest.mark.slow
def test_with_error_feedback_what_is_rounded_away_does_not_add_up(ranks) -> None:
    # Between 1 and 2 bfloat16 has steps of 2**-7, so each of these rounds to 1. The
    # ranks' rounded gradients are equal, so their sum is exact.
    gradient = torch.full((3,), 1 + 2**-9)

    def program(rank: int) -> tuple[list[float], list[float]]:
        errors = []
        for options in ({"wire_dtype": torch.bfloat16}, FEEDBACK):
            found = torch.stack(sums_of([gradient] * 64, **options))
            error = found.cumsum(0) - 2 * gradient * torch.arange(1, 65)[:, None]
            errors.append(error[:, 0].tolist())
        return tuple(errors)

    for plain, fed_back in ranks.run(2, program):
        assert plain == [-(2**-8) * step for step in range(1, 65)]
        # The error stays within half a step of bfloat16 a rank, and is 0 every fourth step.
        assert max(map(abs, fed_back)) <= 2 * 2**-8
        assert fed_back[3::4] == [0] * 16


def test_a_nan_does_not_outlive_its_step_in_the_residual(ranks) -> None:
    bad = torch.tensor([1.0, float("nan"), float("inf")])

    def program(rank: int) -> list[float]:
        *_, found = sums_of([bad, torch.ones(3)], **FEEDBACK)
        return found.tolist()

    assert ranks.run(2, program) == [[2.0] * 3] * 2


def test_a_reset_drops_the_residual(ranks) -> None:
    def program(_: int) -> list[float]:
        a, found = replicated(1), []
        with with_hook(bf16_error_feedback, [a]) as sums:
            for _ in range(5):
                accumulate(a, torch.tensor([1 + 2**-9]))
                sums.wait()
                found.append(a.grad.item())
                sums.reset()
        return found

    assert ranks.run(2, program) == [[2.0] * 5] * 2  # the third of them would be larger


def kept(sums: GradientSynchronizer) -> dict[str, float]:
    return {
        name: found["residual"][0].item() for name, found in sums.state_dict().items()
    }


def test_what_a_hook_keeps_moves_with_gradients_and_through_a_checkpoint(ranks) -> None:
    """The residual of `b` is 2**-9 after one step, in any bucket."""

    def program(_: int) -> list[Any]:
        a, b = group = [replicated(numel) for numel in (2, 256)]
        names = {a: "a", b: "b"}
        config = SynchronizerConfig(comm_hook=bf16_error_feedback)
        made = [
            GradientSynchronizer(
                [group], KIB_MB, 1, parameter_names=names, config=config
            )
            for _ in range(2)
        ]
        with made[0] as sums:
            assert sums.state_dict() == {}
            accumulate(a, torch.ones(2))
            accumulate(b, torch.full((256,), 1 + 2**-9))
            sums.wait()
            before = kept(sums)
            sums.zero_grad()
            assert sums.explain().is_rebuilt
            after, checkpoint = kept(sums), sums.state_dict()
        with made[1] as sums:
            sums.load_state_dict(checkpoint)
            loaded = kept(sums)
            with pytest.raises(InvalidArgumentError) as caught:
                sums.load_state_dict({"c": {}})
            assert lines(caught)[2] == "  got:      state=['c']"
            for each, numel in ((a, 2), (b, 256)):
                accumulate(each, torch.full((numel,), 1 + 2**-9))
            sums.wait()
            return [before, after, loaded, kept(sums)]

    first, second = {"a": 0, "b": 2**-9}, {"a": 2**-9, "b": 2**-8}
    assert ranks.run(2, program) == [[first, first, first, second]] * 2
