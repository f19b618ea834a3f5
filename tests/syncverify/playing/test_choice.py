"""Backends by their names, and environments that have none of a name."""

import pytest
import torch
import torch.distributed as dist

from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.playing import choice
from syncverify.playing.choice import open_backend
from syncverify.scenario.settings import NCCL_NAMES
from syncverify.subjects.subject import resolve

SUBJECT = resolve("synchronizer")


def test_unknown_backend_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        open_backend("mpi", SUBJECT)
    assert str(caught.value) == (
        "unknown backend 'mpi': expected one of sim, streams, gloo, nccl, nccl2, nccl-lazy, "
        "nccl-legacy, fake"
    )


def test_nccl_without_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        open_backend("nccl2", SUBJECT)
    assert str(caught.value) == (
        "the nccl2 backend needs CUDA GPUs and a torch built with NCCL; "
        "without them, use --backend sim or gloo"
    )


@pytest.fixture
def with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch say that it has GPUs and NCCL."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)


@pytest.mark.usefixtures("with_gpus")
def test_a_name_that_torch_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "known_libraries", lambda: frozenset({"nccl"}))
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        open_backend("nccl2", SUBJECT)
    assert str(caught.value) == (
        "the nccl2 backend needs torch 2.14 or newer, and this is torch 2.13.0; "
        "use --backend nccl"
    )


@pytest.mark.usefixtures("with_gpus")
def test_nccl_without_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "known_libraries", lambda: frozenset(NCCL_NAMES))
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: False)
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        open_backend("nccl-lazy", SUBJECT)
    assert str(caught.value) == (
        "the nccl-lazy backend runs under torchrun: "
        "torchrun --nproc-per-node=N -m syncverify run SUBJECT --backend nccl-lazy"
    )
