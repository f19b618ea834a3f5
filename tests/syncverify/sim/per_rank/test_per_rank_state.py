"""Each rank has its own copy of what a process has once; the process gets its own back."""

import contextlib
import io
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_full_backward_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.free_programs import play
from tests.programs import identities
from tests.quality.planted import hashes


def results(program: Callable[[int], Any], num_ranks: int = 2) -> list[Any]:
    found: dict[int, Any] = {}
    play(lambda rank: found.update({rank: program(rank)}), num_ranks)
    return [found[rank] for rank in range(num_ranks)]


DRAWS: dict[str, tuple[Callable[[int], Any], Callable[[], float]]] = {
    "torch": (torch.manual_seed, lambda: torch.rand(()).item()),
    "Python's normal": (random.seed, lambda: random.gauss(0, 1)),
    "numpy's normal": (numpy.random.seed, lambda: float(numpy.random.randn())),
}


@pytest.mark.parametrize(("seed", "draw"), DRAWS.values(), ids=DRAWS)
def test_ranks_draw_the_same_numbers_with_and_without_a_barrier(
    seed: Callable[[int], Any], draw: Callable[[], float]
) -> None:
    def program(rank: int, *, with_barrier: bool) -> list[float]:
        seed(rank)
        drawn = [draw()]  # one of a pair, where a generator makes pairs
        if with_barrier:
            dist.barrier()
        return [*drawn, draw(), draw()]

    with_barrier = results(lambda rank: program(rank, with_barrier=True))
    without = results(lambda rank: program(rank, with_barrier=False))
    assert with_barrier == without
    assert with_barrier[0] != with_barrier[1]


def test_the_generators_of_the_process_are_as_before_after_a_run() -> None:
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    results(lambda rank: [seed(rank) for seed, _ in DRAWS.values()] and None)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert str(numpy.random.get_state()) == str(states[2])


@contextlib.contextmanager
def removed_at_the_end(handle: Any) -> Iterator[None]:
    yield
    handle.remove()


HOOKS: dict[str, Callable[[list[str]], Any]] = {
    "forward": lambda called: register_module_forward_hook(
        lambda *_: called.append("forward")
    ),
    "backward": lambda called: register_module_full_backward_hook(
        lambda *_: called.append("backward")
    ),
    "optimizer": lambda called: register_optimizer_step_post_hook(
        lambda *_: called.append("step")
    ),
}


@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS)
def test_a_hook_of_all_modules_is_called_on_its_rank_alone(
    register: Callable[[list[str]], Any],
) -> None:
    def program(rank: int) -> list[str]:
        called: list[str] = []
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        with (
            removed_at_the_end(register(called))
            if rank == 0
            else contextlib.nullcontext()
        ):
            dist.barrier()
            layer(torch.ones(1, 2, requires_grad=True)).sum().backward()
            optimizer.step()
            dist.barrier()
        layer(torch.ones(1, 2))
        return called

    called = results(program)
    assert [len(each) for each in called] == [1, 0]


def test_a_debug_mode_of_communication_counts_its_own_rank() -> None:
    def program(_: int) -> int:
        mesh = init_device_mesh("cpu", (2,))
        weight = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
        with CommDebugMode() as mode:
            nn.Sequential(nn.Identity())(weight).sum().full_tensor()
        return mode.get_total_counts()

    assert results(program) == [1, 1]


def test_a_loss_is_parallel_on_the_ranks_that_ask_for_it() -> None:
    def program(rank: int) -> str:
        mesh = init_device_mesh("cpu", (2,))
        logits = distribute_tensor(torch.ones(2, 4), mesh, [Shard(1)])
        dist.barrier()
        with loss_parallel():
            dist.barrier()
            loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1]))
            if rank == 1:
                dist.barrier()
        if rank == 0:
            dist.barrier()
        return str(loss.full_tensor().item())[:6]  # type: ignore[attr-defined]

    assert results(program) == ["1.3862"] * 2


def test_implicit_replication_is_of_its_rank() -> None:
    def program(rank: int) -> str:
        mesh = init_device_mesh("cpu", (2,))
        sharded = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        with implicit_replication() if rank == 0 else contextlib.nullcontext():
            dist.barrier()
            try:
                sharded + torch.ones(4)
            except RuntimeError:
                return "refused"
        return "added"

    assert results(program) == ["added", "refused"]


FUNCTIONS = [(dist, "all_gather_into_tensor"), (nn.Linear, "forward")]


@pytest.mark.parametrize(("owner", "name"), FUNCTIONS)
def test_a_function_that_a_rank_patches_is_patched_there_alone(
    owner: Any, name: str
) -> None:
    before = getattr(owner, name)

    def program(rank: int) -> bool:
        if rank == 1:
            dist.barrier()
            found = getattr(owner, name) is before
            dist.barrier()
            return found
        with mock.patch.object(owner, name, print):
            dist.barrier()
            dist.barrier()
            return getattr(owner, name) is print

    assert results(program) == [True, True]
    assert getattr(owner, name) is before


def test_an_import_replaces_functions_for_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each rank of a job would make the import."""
    (tmp_path / "replaces_relu.py").write_text("import torch; torch.relu = print")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch, "relu", torch.relu)

    def program(rank: int) -> bool:
        if rank == 0:
            import replaces_relu  # type: ignore[import-not-found]  # noqa: F401
        dist.barrier()
        return torch.relu is print

    assert results(program) == [True, True]
    monkeypatch.delitem(sys.modules, "replaces_relu")


def test_a_hook_is_its_ranks_though_the_rank_imports_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "an_empty_module.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    def program(rank: int) -> list[str]:
        called: list[str] = []
        if rank == 0:
            register_module_forward_hook(lambda *_: called.append("forward"))
            import an_empty_module  # type: ignore[import-not-found]  # noqa: F401
        dist.barrier()
        nn.Identity()(torch.ones(1))
        return called

    assert results(program) == [["forward"], []]
    monkeypatch.delitem(sys.modules, "an_empty_module")


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], object]]] = {
    "deterministic": (torch.are_deterministic_algorithms_enabled,
        lambda: torch.use_deterministic_algorithms(mode=True)),
    "anomalies": (torch.is_anomaly_enabled,
        lambda: torch.autograd.set_detect_anomaly(True, check_nan=False)),
    "precision of one backend": (lambda: torch.backends.cuda.matmul.fp32_precision == "tf32",
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")),
}  # fmt: skip


@pytest.mark.parametrize(("read", "change"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_is_of_the_rank_that_changes_it(
    read: Callable[[], Any], change: Callable[[], object]
) -> None:
    def program(rank: int) -> Any:
        if rank == 0:
            change()
        dist.barrier()
        return read()

    before = read()
    one, other = results(program)
    assert one != other == before == read()


def test_printed_lines_go_where_their_rank_prints() -> None:
    def program(rank: int) -> str:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            dist.barrier()
            sys.stdout.write(f"{rank}")
            dist.barrier()
        return text.getvalue()

    assert results(program) == ["0", "1"]


def test_overlapping_blocks_catch_the_warnings_of_their_rank() -> None:
    def program(rank: int) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.barrier()
            warnings.warn(f"of rank {rank}", stacklevel=1)
            dist.barrier()
        return [str(each.message) for each in caught]

    before = warnings.filters
    assert results(program) == [["of rank 0"], ["of rank 1"]]
    assert warnings.filters is before


def test_an_order_by_hashes_of_strings_is_found() -> None:
    scenario = Scenario(
        MeshSpec((2,), ("dp",)),
        tuple(ParameterSpec(f"p{n}", (3,), ("R",)) for n in range(6)),
        (1,),
        2**20,
    )
    mismatch = ("collectives_match_across_ranks", "bucket_mismatch")
    assert mismatch in identities(hashes.ReducesByHash, scenario)
    assert identities(hashes.ReducesByName, scenario) == set()
    assert "hash" not in vars(hashes)
