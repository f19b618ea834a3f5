"""The command, called in this process: output and exit code."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from syncverify.command.main import main

SUBJECTS = '''
import torch
import torch.distributed as dist
from syncverify.synchronizer import GradientSynchronizer


class Right(GradientSynchronizer):
    """The built-in one under another name."""


class Doubles(GradientSynchronizer):
    """Doubles every gradient after wait()."""

    def __init__(self, groups, bucket_size_mb, require_accumulations):
        super().__init__(groups, bucket_size_mb, require_accumulations)
        self.mine = [p for group in groups for p in group]

    def wait(self):
        super().wait()
        for parameter in self.mine:
            if parameter.grad is not None:
                parameter.grad.mul_(2)


class SkipsRankOne(GradientSynchronizer):
    def wait(self):
        if dist.get_rank() != 1:
            dist.barrier()
        super().wait()


class FailsAtOnce:
    def __init__(self, groups, bucket_size_mb, require_accumulations): ...
    def bind(self):
        raise ValueError("never binds")
    def wait(self): ...
    def zero_grad(self): ...
    def unbind(self): ...


class LacksWait:
    def __init__(self, groups, bucket_size_mb, require_accumulations): ...
    def bind(self): ...
    def zero_grad(self): ...
    def unbind(self): ...


def makes_nothing(groups, bucket_size_mb, require_accumulations):
    return None


class TalksToItself(GradientSynchronizer):
    def wait(self):
        dist.recv(torch.zeros(4))
'''


@dataclass(frozen=True)
class Outcome:
    """How a call of the command ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on stderr, without the command's name."""
        assert self.err.startswith("syncverify: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        return self.err.removeprefix("syncverify: ").removesuffix("\n")


@pytest.fixture
def call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    hardly_shrunk: None,  # shrinking makes most of the plays of a search
) -> Callable[..., Outcome]:
    """Call the command in a folder that holds a module of subjects."""
    (tmp_path / "cli_subjects.py").write_text(SUBJECTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "cli_subjects", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str, beyond: bool = False) -> Outcome:
        # Ninety features take half a minute.
        if arguments[:1] == ("run",) and len(arguments) > 1 and not beyond:
            arguments = (*arguments, "--no-beyond")
        monkeypatch.setattr(sys, "argv", ["syncverify", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capfd.readouterr()
        return Outcome(int(caught.value.code or 0), captured.out, captured.err)

    return run
