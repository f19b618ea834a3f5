"""A torch on which a right program fails is refused, and no subject is accused."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed import multi_threaded_pg
from torch.torch_version import TorchVersion

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.playing.choice import open_backend
from syncverify.sim.known_torch import first_fault, require_known_torch
from syncverify.subjects.subject import resolve
from tests.warm_python import ROOT, python

# Private names of torch that a backend uses at run time, each with its owner.
NAMES: list[tuple[str, Any, str]] = [
    ("sim", torch._C, "_current_autograd_node"),
    ("sim", torch.autograd, "_unsafe_preserve_version_counter"),
    ("sim", torch.overrides, "_get_current_function_mode_stack"),
    ("sim", dist.Backend, "_plugins"),
    ("sim", c10d, "_new_group_with_tag"),
    ("sim", multi_threaded_pg.ThreadLocalWorld, "_world"),
    ("sim", DTensor, "_op_dispatcher"),
    ("sim", ShardingPropagator, "_propagate_tensor_meta"),
    ("sim", torch.Tensor, "_post_accumulate_grad_hooks"),
    ("gloo", c10d, "_abort_process_group"),
    ("gloo", c10d, "_new_process_group_helper"),
    ("gloo", type(c10d._world), "pg_map"),
    ("gloo", dist.ProcessGroup, "_get_backend"),
    ("fake", dist.ProcessGroup, "unbox"),
]


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    first_fault.cache_clear()
    yield
    first_fault.cache_clear()


def test_settings_of_the_caller_are_no_fault_of_torch() -> None:
    torch.set_default_device("meta")
    try:
        with torch.inference_mode(), warnings.catch_warnings(action="error"):
            require_known_torch()
    finally:
        torch.set_default_device(None)


def test_a_process_with_a_group_of_its_own_is_no_fault_of_torch() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        require_known_torch()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("backend", "owner", "name"), NAMES, ids=[name for *_, name in NAMES]
)
def test_a_name_that_torch_drops_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, backend: str, owner: Any, name: str
) -> None:
    def gone(_: object) -> object:
        raise AttributeError(f"no attribute {name!r}")

    # Tensor inherits names from a class in C++, and DTensor can do without its slots.
    if isinstance(owner, type) and issubclass(owner, torch.Tensor):
        monkeypatch.setattr(owner, name, property(gone))
    else:
        monkeypatch.delattr(owner, name)
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        open_backend(backend, resolve("synchronizer"))
    monkeypatch.undo()
    if dist.is_initialized():  # the function that ends groups was gone
        dist.destroy_process_group()
    message = str(caught.value)
    assert message.startswith(f"torch {torch.__version__} is not known to work: ")
    assert message.count("\n") == 0


DROPPED = [
    ("torch._C._autograd", "_get_sequence_nr", "sim"),
    ("torch.distributed.distributed_c10d", "_abort_process_group", "gloo"),
]
COMMAND = """
import importlib, sys
import torch.distributed.tensor
module, name, backend = sys.argv[1:]
delattr(importlib.import_module(module), name)
sys.argv = ["syncverify", "run", "ddp", "--examples", "1", "--backend", backend]
from syncverify.__main__ import main
main()
"""


@pytest.mark.long
@pytest.mark.parametrize(("module", "name", "backend"), DROPPED)
def test_a_name_that_is_gone_at_import_is_refused_as_well(
    module: str, name: str, backend: str
) -> None:
    done = python("-c", COMMAND, module, name, backend, folder=ROOT)
    messages = [
        line for line in done.stderr.splitlines() if line.startswith("syncverify:")
    ]
    assert (done.returncode, done.stdout, len(messages)) == (2, "", 1), done.stderr
    # The metadata of a wheel does not name the build.
    release, *_ = torch.__version__.partition("+")
    assert re.search(rf"torch {release}\S* is not known to work: ", messages[0])
    assert repr(name) in messages[0]


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.11.0+cu130"))
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        open_backend("sim", resolve("synchronizer"))
    monkeypatch.undo()
    assert str(caught.value) == (
        "torch 2.11.0+cu130 is not known to work on simulated ranks: they need 2.13 or newer. "
        "Nothing was judged"
    )


def test_another_outcome_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_current_autograd_node", lambda: None)
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        require_known_torch()
    assert str(caught.value) == (
        f"torch {torch.__version__} is not known to work: a node of autograd that runs has "
        "another outcome. Nothing was judged. Use a release of torch that syncverify was "
        "tested with"
    )


_DELETES = """
import torch.distributed.distributed_c10d as c10d

del c10d._resolve_process_group

class Sums:
    def __init__(self, groups, size_mb, count): ...
    def bind(self): ...
    def wait(self): ...
    def zero_grad(self): ...
    def unbind(self): ...
"""


@pytest.mark.long
def test_a_subject_that_takes_a_name_from_torch_ends_in_one_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "deletes.py").write_text(_DELETES)
    command = ("-m", "syncverify", "run", "deletes.py:Sums", "-q")
    ended = python(*command, folder=tmp_path)
    assert ended.returncode == 2
    (message,) = ended.stderr.splitlines()
    assert "or what it imports, has changed torch" in message
    assert "'_resolve_process_group'. Nothing was judged" in message
