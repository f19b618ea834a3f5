"""Verdicts do not depend on what the caller has turned on in torch."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch

from syncverify import verify


@contextmanager
def default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(before)


STATES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "default dtype": default_dtype,
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("subject", ["synchronizer", "ddp"])
def test_a_right_subject_is_right_in_any_state(subject: str, state: str) -> None:
    with STATES[state]():
        assert verify(subject, ranks=2, examples=6, seed=0).examples == 6
