"""Settings of the process and its random generators, which belong to the training program.

A subject may change a setting for the length of a call, and may draw random numbers. It may
not leave a setting behind, and it may not seed a generator: the next dropout would repeat.
"""

from __future__ import annotations

import functools
import gc
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import torch

from syncverify.program import relied_functions


def _set_detection(mode: bool) -> None:  # noqa: FBT001  # as torch's other setters
    torch.autograd.set_detect_anomaly(mode)


def _precision() -> str:
    # Once a backend's precision was set by itself, torch refuses to tell that of all.
    with suppress(RuntimeError):
        return torch.get_float32_matmul_precision()
    return "set for one backend"


# Each setting that a training program relies on: how to read it, and how to set it.
_SETTINGS: Final[Mapping[str, tuple[Callable[[], Any], Callable[[Any], None]]]] = {
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": (
        lambda: getattr(torch, "get_default_device")(),  # noqa: B009  # untyped in torch
        torch.set_default_device,
    ),
    "torch's deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's precision of matrix products": (
        _precision,
        torch.set_float32_matmul_precision,
    ),
    "autograd's detection of anomalies": (
        torch.is_anomaly_enabled,
        _set_detection,
    ),
    "cuDNN's benchmark mode": (
        lambda: torch.backends.cudnn.benchmark,
        functools.partial(setattr, torch.backends.cudnn, "benchmark"),
    ),
}
# Blocks of 624 words that a subject may draw from Python's generator in one run.
_MAX_BLOCKS = 1000
_BITS_OF_BLOCK = 624 * 32


class ProcessSettings:
    """Settings and generators as they are now, to be compared later."""

    def __init__(self) -> None:
        self._settings = {name: read() for name, (read, _) in _SETTINGS.items()}
        self._torch_seed = torch.initial_seed()
        self._python_state = random.getstate()

    def changed(self) -> tuple[str, ...]:
        """Name the settings that have another value now, and the functions."""
        settings = tuple(
            f"{name} is {read()}, was {self._settings[name]}"
            for name, (read, _) in _SETTINGS.items()
            if read() != self._settings[name]
        )
        functions = (f"{name} is replaced" for name in relied_functions.replaced())
        return (*settings, *functions)

    def reseeded(self) -> tuple[str, ...]:
        """Name the generators that were seeded since; drawing from them is no seeding."""
        names = []
        if torch.initial_seed() != self._torch_seed:
            names.append("torch's generator")
        if not _may_follow(self._python_state, random.getstate()):
            names.append("Python's generator")
        return tuple(names)

    def restore(self) -> None:
        """Give settings their values back."""
        for name, (read, write) in _SETTINGS.items():
            if read() != self._settings[name]:
                write(self._settings[name])
        relied_functions.restore()


def _may_follow(earlier: tuple[Any, ...], later: tuple[Any, ...]) -> bool:
    """Tell whether a state of Python's generator is reached by drawing from an earlier one."""
    twin = random.Random()
    twin.setstate(earlier)
    for _ in range(_MAX_BLOCKS):
        # The words of a state, without the position that follows them.
        if twin.getstate()[1][:-1] == later[1][:-1]:
            return True
        twin.getrandbits(_BITS_OF_BLOCK)
    return False


@contextmanager
def restored_settings() -> Iterator[ProcessSettings]:
    """Restore the settings and generators of the process after a block, whatever it does."""
    settings = ProcessSettings()
    try:
        with _restored_generators():
            yield settings
    finally:
        settings.restore()


@contextmanager
def other_chance(seed: int) -> Iterator[None]:
    """Let generators draw other numbers in a block, as they do in another run of a program."""
    with _restored_generators():
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        yield


@contextmanager
def _restored_generators() -> Iterator[None]:
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)


@contextmanager
def no_collection_of_cycles() -> Iterator[None]:
    """Turn the cycle collector off: what it frees, and whom that calls, depends on chance."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
