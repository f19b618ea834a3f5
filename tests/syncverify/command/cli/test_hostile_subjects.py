"""Whatever a subject raises is a violation of the subject, in plain text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
HOSTILE = """
import torch.distributed as dist
from syncverify.synchronizer import GradientSynchronizer


class Surrogate(GradientSynchronizer):
    def wait(self):
        raise ValueError("bad \\ud800 text \\x1b[2J")


class WithoutText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class RaisesWithoutText(GradientSynchronizer):
    def wait(self):
        raise WithoutText


class Destroys(GradientSynchronizer):
    def wait(self):
        dist.destroy_process_group()


class Strange(GradientSynchronizer):
    def wait(self):
        raise type("[/b]\\x1b", (Exception,), {})("a")


class Answers(type):
    def __getattr__(cls, name):
        raise RuntimeError("no answer")


class CannotBeInspected(GradientSynchronizer, metaclass=Answers):
    pass
"""
SAID = {
    "Surrogate": r"ValueError in step 0, wait: bad \ud800 text \x1b[2J",
    "RaisesWithoutText": "WithoutText in step 0, wait: (its message cannot be read: "
    "RuntimeError)",
    "Destroys": "RuntimeError in step 0, wait: the default process group was destroyed",
    "Strange": r"[/b]\x1b in step 0, wait: a",
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "backend"), [*((name, "sim") for name in SAID), ("Destroys", "fake")]
)
def test_hostile_exception_is_a_violation(
    call: Call, tmp_path: Path, subject: str, backend: str
) -> None:
    (tmp_path / "cli_subjects.py").write_text(HOSTILE)
    outcome = call(
        "run", f"cli_subjects:{subject}", "--examples", "1", "--seed", "0",
        "--ranks", "1", "--backend", backend,
    )  # fmt: skip
    assert (outcome.code, outcome.err) == (1, "")
    assert f"rank 0 raised {SAID[subject]}" in outcome.out
    assert "\x1b" not in outcome.out


def test_subject_that_cannot_be_inspected_is_refused(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "cli_subjects.py").write_text(HOSTILE)
    outcome = call("run", "cli_subjects:CannotBeInspected")
    assert outcome.code == 2
    assert outcome.complaint == (
        "subject 'cli_subjects:CannotBeInspected' cannot be inspected: RuntimeError: "
        "no answer"
    )
