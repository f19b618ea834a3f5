"""Facts about private names of torch; a release of torch that changes one fails here."""

import inspect
import weakref
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syncverify.sim.device.torch_internals import (
    COLLECT_ALL,
    NEW_GROUP,
    REGISTER_COMM_HOOK,
    default_device,
    forget_backend,
    next_sequence_number,
    running_node,
    schema_arguments,
    sequence_number_of,
    without_new_versions,
)


def test_the_next_node_gets_the_next_sequence_number() -> None:
    leaf = torch.ones(2, requires_grad=True)
    expected = next_sequence_number()
    assert sequence_number_of((leaf * 2).grad_fn) == expected
    assert next_sequence_number() == expected + 1


def test_a_node_is_running_within_its_hook_alone() -> None:
    leaf = torch.ones(2, requires_grad=True)
    doubled = leaf * 2
    seen: list[object] = []
    doubled.register_hook(lambda _: seen.append(running_node()))
    assert running_node() is None
    doubled.sum().backward()
    assert seen == [doubled.grad_fn]
    assert running_node() is None


def test_the_default_device_is_the_innermost_that_is_named() -> None:
    cpu, meta = torch.device("cpu"), torch.device("meta")
    assert default_device() == cpu
    with meta:
        assert default_device() == meta
        with cpu:
            assert default_device() == cpu
    torch.set_default_device(meta)
    try:
        assert default_device() == meta
    finally:
        torch.set_default_device(None)


def test_hidden_writes_leave_the_version_and_the_graph_alone() -> None:
    factor = torch.ones(2)
    loss = (torch.ones(2, requires_grad=True) * factor).sum()
    version = factor._version
    with torch.no_grad(), without_new_versions([factor]):
        factor.fill_(3)
    assert factor._version == version
    loss.backward()


def test_a_schema_tells_which_arguments_are_written() -> None:
    arguments = schema_arguments(torch.ops.aten.add_.Tensor)
    written = {
        argument.name: argument.alias_info is not None and argument.alias_info.is_write
        for argument in arguments
    }
    assert written == {"self": True, "other": False, "alpha": False}


def test_a_forgotten_backend_keeps_no_maker_alive() -> None:
    """Kept, it would hold the world of its run. The name may be registered again."""
    for _ in range(2):

        def create(
            _store: dist.Store, _rank: int, _size: int, _limit: timedelta
        ) -> None:
            """Never called: no group is made."""

        dist.Backend.register_backend("forgettable", create, devices=["cpu"])
        maker = weakref.ref(create)
        del create
        assert maker() is not None
        forget_backend("forgettable")
        assert maker() is None


def test_futures_are_collected_by_the_function_that_the_machine_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    future = torch.futures.Future[int]()
    future.set_result(3)

    def collect(futures: list[torch.futures.Future[int]]) -> torch.futures.Future[Any]:
        seen.append(futures)
        result = torch.futures.Future[Any]()
        result.set_result(futures)
        return result

    monkeypatch.setattr(*COLLECT_ALL, collect)
    assert torch.futures.wait_all([future]) == [3]
    assert torch.futures.collect_all([future]).wait() == [future]
    assert seen == [[future], [future]]


def test_groups_are_made_by_the_function_that_the_machine_replaces() -> None:
    owner, name = NEW_GROUP
    assert owner is dist.distributed_c10d
    assert name in dist.new_group.__wrapped__.__code__.co_names
    given = [*inspect.signature(getattr(*NEW_GROUP)).parameters]
    assert given[:4] == ["ranks", "timeout", "backend", "backend_options"]


def test_ddp_gives_its_hook_to_the_function_that_the_machine_replaces() -> None:
    owner, name = REGISTER_COMM_HOOK
    hooks = DistributedDataParallel.register_comm_hook
    assert owner is dist
    assert name in hooks.__code__.co_names
