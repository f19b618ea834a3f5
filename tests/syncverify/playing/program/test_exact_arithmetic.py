"""Scenarios are played exactly, whatever a program has turned on in torch."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.sim import SimBackend
from syncverify.subjects.subject import resolve
from syncverify.synchronizer import GradientSynchronizer
from tests.programs import one_parameter

PRODUCTS: Any = torch.backends.cuda.matmul
ALONE = one_parameter(1, "w", (5,))


def positions() -> dict[str, Any]:
    """Return the positions of some of torch's switches; None where torch refuses to tell."""
    found: dict[str, Any] = {
        "products": PRODUCTS.fp32_precision,
        "convolutions": torch.backends.cudnn.conv.fp32_precision,
        "of the host": torch.backends.mkldnn.matmul.fp32_precision,  # type: ignore[attr-defined]
        "fp16": PRODUCTS.allow_fp16_reduced_precision_reduction,
        "fp16_split_k": PRODUCTS.allow_fp16_reduced_precision_reduction_split_k,
        "benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.backends.cudnn.deterministic,
        "old": None,
    }
    with suppress(RuntimeError):
        found["old"] = torch.get_float32_matmul_precision()
    return found


EXACT = {
    **dict.fromkeys(("products", "convolutions", "of the host"), "ieee"),
    "fp16": False, "fp16_split_k": True,
    "benchmark": False, "deterministic": True, "old": "highest",
}  # fmt: skip


def turn_on_by_old_names() -> None:
    PRODUCTS.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def turn_on_by_new_names() -> None:
    PRODUCTS.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "tf32"


def turn_on_medium() -> None:
    torch.set_float32_matmul_precision("medium")


def turn_on_reductions() -> None:
    PRODUCTS.allow_bf16_reduced_precision_reduction = (True, True)
    PRODUCTS.allow_fp16_reduced_precision_reduction = (False, False)


@pytest.mark.parametrize(
    "turn_on",
    [lambda: None, turn_on_by_old_names, turn_on_by_new_names, turn_on_medium,
     turn_on_reductions],
)  # fmt: skip
def test_arithmetic_is_exact_within_and_as_before_afterwards(
    turn_on: Callable[[], None],
) -> None:
    with exact_arithmetic():  # keeps this test from others
        turn_on()
        before = positions()
        with exact_arithmetic():
            assert positions() == EXACT
            turn_on()
        assert positions() == before


def order_of_sums() -> tuple[bool, ...]:
    """Return the positions of torch's switches for sums in any order."""
    cuda: Any = torch.backends.cuda
    deterministic: Any = torch.utils.deterministic
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_gpu_adds_up_in_one_order(device: str) -> None:
    """A CPU does anyway, and an operator that is replaced there would change traces."""
    before = order_of_sums()
    within = (True, True, False, False, False, False) if device == "cuda" else before
    with exact_arithmetic(torch.device(device)):
        assert order_of_sums() == within
    assert order_of_sums() == before


class Fast(GradientSynchronizer):
    seen: list[str]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen.append(PRODUCTS.fp32_precision)
        PRODUCTS.fp32_precision = "tf32"


def test_a_subject_that_turns_it_off_does_so_in_its_own_scenario() -> None:
    Fast.seen = []
    before = positions()
    backend = SimBackend()
    for _ in range(2):
        assert backend.run(ALONE, resolve(Fast)).fault is None
    assert set(Fast.seen) == {"ieee"}
    assert positions() == before
