import pytest
import torch
import torch.distributed as dist

from syncverify.backends.choice import open_backend
from syncverify.backends.fake import FakeBackend
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.defaults import BACKEND_NAMES
from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.subjects.subject import resolve

SUBJECT = resolve("synchronizer")


def test_backends_open_by_name_and_close_unused() -> None:
    kinds = {"sim": SimBackend, "gloo": GlooBackend, "fake": FakeBackend}
    for name, kind in kinds.items():
        opened = open_backend(name, SUBJECT)
        assert isinstance(opened, kind)
        assert opened.name == name
        opened.close()
    assert set(BACKEND_NAMES) == {*kinds, "nccl"}


def test_unknown_backend_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        open_backend("mpi", SUBJECT)
    assert str(caught.value) == (
        "unknown backend 'mpi': expected one of sim, gloo, nccl, fake"
    )


def test_nccl_without_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        open_backend("nccl", SUBJECT)
    assert str(caught.value) == (
        "the nccl backend needs CUDA GPUs and a torch built with NCCL; "
        "without them, use --backend sim or gloo"
    )


def test_nccl_without_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: False)
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        open_backend("nccl", SUBJECT)
    assert str(caught.value) == (
        "the nccl backend runs under torchrun: "
        "torchrun --nproc-per-node=N -m syncverify run SUBJECT --backend nccl"
    )
