"""An unknown way of torch with process groups is refused, and no subject is accused."""

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.playing import known_groups, rank_groups, recording
from syncverify.playing.known_groups import require_known_groups
from syncverify.sim.known_torch import first_fault
from syncverify.sim.network import threaded_world


@pytest.fixture(autouse=True)
def _tried_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    first_fault.cache_clear()
    yield
    monkeypatch.undo()
    first_fault.cache_clear()
    if dist.is_initialized():  # a test has taken the function that ends groups
        dist.destroy_process_group()


def test_an_operator_of_another_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be missing in every record: no collective would be compared with another."""
    monkeypatch.delitem(recording._OPERATIONS, "allreduce_")
    for backend in ("gloo", "fake"):
        with pytest.raises(EnvironmentNotSupportedError) as caught:
            require_known_groups(backend)
        assert str(caught.value).startswith(
            f"torch {torch.__version__} is not known to work: a collective that the "
            "dispatcher shows has another outcome. "
        )


def test_a_backend_is_not_refused_for_what_it_does_not_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(c10d, "_abort_process_group")
    for backend in ("sim", "streams", "fake"):
        require_known_groups(backend)


def test_a_mesh_that_makes_a_group_of_its_own_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On gloo, where torch sees a GPU, a mesh does not take the default group."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    made = Mock(wraps=device_mesh.new_group)
    monkeypatch.setattr(device_mesh, "new_group", made)
    require_known_groups("gloo")
    assert made.call_count == 2  # one in each play: torch makes it still


@pytest.mark.parametrize("lacks", ["abort", "shutdown", "_group_start"])
def test_nccl_without_an_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    names = {"abort", "shutdown", "_group_start", "_group_end"}
    whole = type("Whole", (), dict.fromkeys(names))
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(c10d, "ProcessGroupNCCL", whole, raising=False)
    assert rank_groups.has_all_ends()
    part = type("Part", (), dict.fromkeys(names - {lacks}))
    monkeypatch.setattr(c10d, "ProcessGroupNCCL", part)
    with pytest.raises(EnvironmentNotSupportedError, match="communicators of NCCL has"):
        require_known_groups("nccl")
    require_known_groups("gloo")


def test_the_process_is_left_as_it_was() -> None:
    world, environment = threaded_world.own_world(), dict(known_groups.os.environ)
    assert first_fault(known_groups.mechanisms_of("gloo")) is None
    assert dict(known_groups.os.environ) == environment
    assert threaded_world.own_world() is world
