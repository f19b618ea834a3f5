"""The printed line plays a token where the present job could."""

import pytest

from syncverify.replay_line import replay_line


def under_torchrun(
    monkeypatch: pytest.MonkeyPatch, *, machines: int, backend: str
) -> str:
    """Return how a line begins on one of some machines with 8 processes each."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("GROUP_WORLD_SIZE", str(machines))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    monkeypatch.setenv("MASTER_ADDR", "first.example")
    start, end = replay_line("sv2-x", "mine:Sync", backend).split(" replay ")
    assert end == f"sv2-x mine:Sync --backend {backend}"
    return start


def test_names_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert replay_line("sv2-x", "mine:a b", "sim") == (
        "syncverify replay sv2-x 'mine:a b'"
    )
    assert replay_line("sv2-y", "mine:Sync", "gloo", "my file.toml") == (
        "syncverify replay sv2-y mine:Sync --backend gloo --contract 'my file.toml'"
    )


def test_gpus_need_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    start = under_torchrun(monkeypatch, machines=1, backend="nccl")
    assert start == "torchrun --nproc-per-node=8 -m syncverify"


def test_gloo_on_one_machine_starts_processes_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = under_torchrun(monkeypatch, machines=1, backend="gloo")
    assert start == "syncverify"


@pytest.mark.parametrize("backend", ["gloo", "nccl", "nccl2"])
def test_several_machines_need_torchrun(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    assert under_torchrun(monkeypatch, machines=2, backend=backend) == (
        "torchrun --nproc-per-node=8 --nnodes=2 --rdzv-backend=c10d "
        "--rdzv-endpoint=first.example:29400 -m syncverify"
    )
