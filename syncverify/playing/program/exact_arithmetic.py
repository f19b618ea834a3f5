"""Exact arithmetic: torch's switches for fast and rounded products, off for a scenario.

The gradients of a scenario are whole numbers, whose products and sums a device computes
exactly unless it may round its inputs. Programs turn that on when they are imported
(`torch.backends.cuda.matmul.allow_tf32 = True`), and torch allows it for convolutions. The
switches belong to the process.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

from syncverify.backend_flags import changeable_flags


class _Switch(NamedTuple):
    """One switch: how torch reads and sets it, and its exact position."""

    read: Callable[[], Any]
    set: Callable[[Any], None]
    exact: Any


@contextmanager
def exact_arithmetic(device: torch.device | None = None) -> Iterator[None]:
    """Compute exactly from the beginning of a block; set all switches back at its end.

    On a GPU sums of real numbers are then computed in one order, where torch knows how: two runs of
    one graph are equal to the bit.
    """
    switches = _switches()
    if device is not None and device.type == "cuda":
        switches += _same_order_each_time()
    before = [_position(switch) for switch in switches]
    _set(switches, (switch.exact for switch in switches))
    try:
        yield
    finally:
        _set(switches, before)


def _set(switches: Sequence[_Switch], positions: Iterable[Any]) -> None:
    with changeable_flags():
        for switch, position in zip(switches, positions, strict=True):
            switch.set(position)


def _same_order_each_time() -> list[_Switch]:
    """List the switches of operators that add up in the order in which threads arrive."""
    deterministic: Any = torch.utils.deterministic
    cuda: Any = torch.backends.cuda
    return [
        # Kernels of attention that add up in any order unless torch may refuse operators.
        _Switch(cuda.flash_sdp_enabled, cuda.enable_flash_sdp, exact=False),
        _Switch(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, exact=False),
        _Switch(cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp, exact=False),
        # Before the next switch, under which torch would fill the result of `torch.empty`.
        _attribute(deterministic, "fill_uninitialized_memory", exact=False),
        _Switch(
            lambda: (torch.are_deterministic_algorithms_enabled(),
                     torch.is_deterministic_algorithms_warn_only_enabled()),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
            (True, True),
        ),
    ]  # fmt: skip


def _position(switch: _Switch) -> Any:
    # A program that has set one switch by its old and its new name may not ask by the old.
    with suppress(RuntimeError):
        return switch.read()
    return switch.exact


def _switches() -> list[_Switch]:
    """List the switches: old names first, which set some of the new names too."""
    backends: Any = torch.backends
    products, cudnn, mkldnn = backends.cuda.matmul, backends.cudnn, backends.mkldnn
    precise: list[Any] = [
        products, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn,
    ]  # fmt: skip
    read, set_to = (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    )
    return [
        _Switch(read, set_to, "highest"),
        _attribute(cudnn, "allow_tf32", exact=False),
        *(_attribute(owner, "fp32_precision", exact="ieee") for owner in precise),
        _attribute(products, "allow_fp16_accumulation", exact=False),
        _reductions("allow_fp16_reduced_precision_reduction"),
        _reductions("allow_bf16_reduced_precision_reduction"),
        _attribute(cudnn, "benchmark", exact=False),
        _attribute(cudnn, "deterministic", exact=True),
        _attribute(mkldnn, "deterministic", exact=True),
    ]


def _attribute(owner: Any, name: str, *, exact: Any) -> _Switch:
    return _Switch(
        lambda: getattr(owner, name), lambda value: setattr(owner, name, value), exact
    )


def _reductions(name: str) -> _Switch:
    """Return a switch of partial sums in the dtype of the inputs, and of split sums."""
    products: Any = torch.backends.cuda.matmul
    return _Switch(
        lambda: (getattr(products, name), getattr(products, f"{name}_split_k", True)),
        lambda value: setattr(products, name, value),
        (False, True),
    )
