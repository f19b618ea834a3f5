"""Unfit programs and arguments: one clear line each, and no false verdict."""

import functools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from syncverify import UsageError, simulate
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulation import Simulation
from tests.free_programs import code_of_a_forked_child, in_new_process


class _Trainer:
    def __call__(self, rank: int) -> int:
        return rank

    def train(self, rank: int) -> int:
        return rank


def _generator(rank: int) -> Iterator[int]:
    yield rank


async def _coroutine(rank: int) -> int:
    return rank


async def _stream(rank: int) -> AsyncIterator[int]:
    yield rank


def _two(rank: int, other: int) -> int:
    return rank + other


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (_Trainer, "_Trainer is a class; a function has to make its object and use it"),
        (_generator, "_generator() is a generator, and a call runs none of its lines"),
        (
            _coroutine,
            "_coroutine() is async; a function has to run it, as by asyncio.run()",
        ),
        (_stream, "_stream() is a generator, and a call runs none of its lines"),
        (
            _two,
            (
                "a rank alone is not enough for _two(rank: int, other: int) -> int; "
                "functools.partial gives the other arguments"
            ),
        ),
        (3, "3 is not callable"),
    ],
)
def test_what_is_no_function_of_a_rank_is_bad_usage(program: Any, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(program, 2)
    assert str(caught.value).replace("'int'", "int").replace("'", "") == (
        f"expected a function of a rank: {problem}"
    )


@pytest.mark.parametrize(
    ("program", "results"),
    [
        (_Trainer(), (0, 1)),
        (_Trainer().train, (0, 1)),
        (functools.partial(_two, other=3), (3, 4)),
        (lambda *given: given, ((0,), (1,))),
        (lambda rank=7: rank, (0, 1)),
        (lambda steps=7: steps, (7, 7)),
        (lambda: 7, (7, 7)),
    ],
)
def test_a_program_gets_its_rank_where_it_needs_one_or_names_it(
    program: Callable[..., Any], results: tuple[Any, ...]
) -> None:
    assert simulate(program, 2).results == results


@pytest.mark.parametrize("ranks", [0, 100_000])
def test_the_number_of_ranks_has_bounds(ranks: int) -> None:
    with pytest.raises(UsageError, match=f"expected 1 to 4096 ranks, not {ranks}"):
        simulate(_two, ranks)


def test_an_unknown_device_is_refused() -> None:
    device: Any = "tpu"
    with pytest.raises(UsageError, match="expected device 'cuda' or 'cpu', not 'tpu'"):
        simulate(_two, device=device)


def _summary(simulation: Simulation) -> tuple[str, str, tuple[int, ...]]:
    (found,) = simulation.violations
    violation = found.violation
    return violation.cause, violation.summary, violation.ranks


def _calls_itself(rank: int) -> int:
    return _calls_itself(rank)


def test_a_line_of_a_recursion_is_listed_once() -> None:
    assert str(simulate(_calls_itself, 1)).count("in _calls_itself") == 1


# Looked up at each call: the name of `os` is another function on a rank.
@pytest.mark.parametrize("leave", [sys.exit, lambda code: os._exit(code)])
def test_an_exit_with_a_code_is_an_error_of_its_rank_and_without_one_its_end(
    leave: Callable[[int], Any],
) -> None:
    def program(rank: int, code: int) -> None:
        if rank == 1:
            leave(code)
        if code:
            dist.barrier()

    assert simulate(functools.partial(program, code=0), 2).is_right
    summary = "rank 1 raised SystemExit: 3"
    found = simulate(functools.partial(program, code=3), 2)
    assert _summary(found) == ("raised_SystemExit", summary, (1,))


def test_an_error_without_words_ends_without_a_colon() -> None:
    def program(rank: int) -> None:
        raise KeyboardInterrupt

    assert _summary(simulate(program, 1))[1] == "rank 0 raised KeyboardInterrupt"


@pytest.mark.long(3)
def test_a_child_of_a_rank_may_exit() -> None:
    assert in_new_process(code_of_a_forked_child) == (5,)


def _uses_of(device: Any) -> list[Callable[[], Any]]:
    return [
        lambda: torch.ones(2, device=device),
        lambda: torch.ones(2).to(device),
        lambda: torch.nn.Linear(2, 2).to(device),
        lambda: torch.cuda.set_device(device),
        lambda: torch.cuda.Stream(device=device),
        lambda: torch.cuda.device(device).__enter__(),
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_gpu_of_another_rank_may_be_named_and_a_missing_one_is_an_error(
    number: int,
) -> None:
    assert simulate(_uses_of("cuda:1")[number], 2).is_right
    assert _summary(simulate(_uses_of("cuda:7")[number], 2)) == (
        "raised_RuntimeError",
        "rank 0 raised RuntimeError: CUDA error: invalid device ordinal: cuda:7 of 2 GPUs",
        (0,),
    )


def _starts_rpc() -> None:
    from torch.distributed import rpc

    rpc.init_rpc("worker")


def _uses_symmetric_memory() -> None:
    import torch.distributed._symmetric_memory as symmetric

    symmetric.empty(4, device="cuda")


def _checkpoint(backend: str) -> dict[str, Any]:
    """Return the arguments that save a checkpoint over a new group."""
    group = dist.new_group(backend=backend)
    state = {"weight": torch.ones(2, device="cuda")}
    return {"state_dict": state, "checkpoint_id": "unused", "process_group": group}


def _saves_in_a_process() -> None:
    kind = AsyncCheckpointerType.PROCESS
    checkpoint.async_save(**_checkpoint("gloo"), async_checkpointer_type=kind)


def _saves_in_a_thread(backend: str) -> None:
    checkpoint.async_save(**_checkpoint(backend)).result()


@pytest.mark.parametrize(
    ("program", "feature"),
    [
        (_starts_rpc, "rpc"),
        (_uses_symmetric_memory, "symmetric memory"),
        (_saves_in_a_process, "checkpoints that another process saves"),
    ],
)
def test_what_is_not_simulated_is_named(
    program: Callable[[], None], feature: str
) -> None:
    refused = simulate(program, 2).refused
    assert refused.startswith(f"the sim backend does not simulate {feature}, used at ")
    assert f"in {program.__name__}" in refused


def test_a_checkpoint_that_a_thread_saves_is_refused() -> None:
    simulation = simulate(lambda _: _saves_in_a_thread("gloo"), 2)
    assert not simulation.violations
    assert "threads that communicate beside their rank" in simulation.refused
    assert simulation.refused.endswith("; let the rank's own thread do it")


def test_a_checkpoint_beside_training_needs_a_group_of_the_host() -> None:
    cause, summary, _ = _summary(simulate(lambda _: _saves_in_a_thread("nccl"), 2))
    assert cause == "raised_AssertionError"
    assert "A CPU backend must be enabled for async save" in summary


def test_a_long_sleep_is_short_and_lets_others_move() -> None:
    order = list[int]()

    def program(rank: int) -> None:
        if rank == 0:
            time.sleep(86_400)
        order.append(rank)

    assert simulate(program, 2, hang_timeout_seconds=5).is_right
    assert order == [1, 0]


def test_sleeps_without_an_end_are_ended() -> None:
    def program(rank: int) -> None:
        while rank == 0:
            time.sleep(1)
        dist.barrier()

    cause, _, ranks = _summary(simulate(program, 2, hang_timeout_seconds=0.2))
    assert (cause, ranks) == ("step_bound", (0,))


@pytest.mark.long
def test_a_loop_without_an_end_is_ended() -> None:
    def program(rank: int) -> None:
        while rank == 1:
            pass

    summary = "rank 1 made no progress and was ended"
    simulation = simulate(program, 2, hang_timeout_seconds=0.5)
    assert _summary(simulation) == ("never_returns", summary, (1,))


def _trains_with_the_hook_of_bfloat16() -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2).cuda())
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    model(torch.ones(2, 2, device="cuda")).sum().backward()


def test_ddp_compresses_to_bfloat16_also_on_a_torch_without_cuda() -> None:
    def program(rank: int) -> None:
        assert torch.cuda.nccl.version() >= (2, 10)
        assert torch.version.cuda is not None
        _trains_with_the_hook_of_bfloat16()

    simulation = simulate(program, 2)
    assert (simulation.violations, simulation.refused) == ((), "")


_NEED_A_GPU: dict[str, Callable[[], Any]] = {
    "CUDA generator": lambda: torch.Generator("cuda"),
    "'aten::_fused_dropout'": lambda: torch.ops.aten._fused_dropout(
        torch.ones(2, device="cuda"), 0.5
    ),
}


@pytest.mark.parametrize("need", _NEED_A_GPU)
def test_what_only_a_gpu_can_do_is_refused_and_no_violation(need: str) -> None:
    def program(rank: int) -> None:
        _NEED_A_GPU[need]()
        dist.barrier()

    simulation = simulate(program, 2)
    assert simulation.violations == ()
    assert "does not simulate what needs a real GPU" in simulation.refused
    assert need in simulation.refused
    assert "test_unfit_programs.py:" in simulation.refused


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda", "this job needs 8 GPUs"),
        ("cpu", "Torch not compiled with CUDA enabled"),
    ],
)
def test_an_error_of_the_program_itself_is_a_violation(
    device: Device, message: str
) -> None:
    def program(rank: int) -> None:
        raise RuntimeError(message)

    simulation = simulate(program, 1, device=device)
    assert _summary(simulation)[1] == f"rank 0 raised RuntimeError: {message}"
