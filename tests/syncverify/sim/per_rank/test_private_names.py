"""Facts about private names of torch and Python that the state of ranks relies on."""

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from syncverify.program.global_hooks import full_backward_hooks
from syncverify.sim.per_rank import dtensor_tables, generators


def test_a_parallel_loss_changes_the_table_of_handlers_in_place() -> None:
    table = getattr(DTensor._op_dispatcher, dtensor_tables.HANDLERS)
    before = dict(table)
    with loss_parallel():
        assert dict(table) != before
    assert dict(table) == before


def test_each_attribute_of_dtensor_is_found() -> None:
    missing = [
        name for owner, name in dtensor_tables._ATTRIBUTES if not hasattr(owner, name)
    ]
    assert missing == []


def test_the_kind_of_backward_hooks_is_found() -> None:
    read, write = full_backward_hooks()
    before = read()
    write(True)
    assert read() is True
    write(before)


def test_python_looks_its_loader_up_for_each_module_that_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "found_by_loader.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    bootstrap: Any = importlib._bootstrap  # type: ignore[attr-defined]
    load, loaded = bootstrap._find_and_load, list[str]()

    def noted(name: str, *rest: Any) -> Any:
        loaded.append(name)
        return load(name, *rest)

    with mock.patch.object(bootstrap, "_find_and_load", noted):
        for _ in range(2):
            import found_by_loader  # type: ignore[import-not-found]  # noqa: F401
    assert loaded == ["found_by_loader"]
    monkeypatch.delitem(sys.modules, "found_by_loader")


def test_all_patches_of_attributes_are_entered_by_one_class() -> None:
    entered: list[str] = []
    kind: Any = mock._patch  # type: ignore[attr-defined]
    enter = kind.__enter__

    def noted(patch: Any) -> Any:
        entered.append(patch.attribute)
        return enter(patch)

    with mock.patch.object(kind, "__enter__", noted):
        with mock.patch.object(torch, "relu"), mock.patch("torch.tanh"):
            pass
        starting = mock.patch("torch.sin")
        starting.start()
        starting.stop()
    assert entered == ["relu", "tanh", "sin"]


def test_the_words_of_numpys_generator_are_its_state() -> None:
    numpy.random.seed(5)
    own: Any = generators._OfNumpy()
    _, words, position, *_ = numpy.random.get_state()
    expected = words.astype("uint32").tobytes() + int(position).to_bytes(
        4, sys.byteorder
    )
    assert own._words() == expected
