"""Settings of the process, which belong to the training program.

A subject may change a setting for the length of a call. It may not leave a setting behind.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import torch
from typing_extensions import override

from syncverify.backend_flags import changeable_flags
from syncverify.plain_text import counted
from syncverify.sim.process_wide import float32_precision, relied_functions
from syncverify.sim.process_wide.generators import Generators, restored_generators
from syncverify.sim.process_wide.surroundings import Surroundings
from syncverify.trace.source_lines import working_directory


class _Setting(NamedTuple):
    """How to read a setting, and how to set it."""

    read: Callable[[], Any]
    set: Callable[[Any], object]


def _of_cudnn(name: str) -> _Setting:
    cudnn = torch.backends.cudnn
    return _Setting(
        lambda: getattr(cudnn, name), functools.partial(setattr, cudnn, name)
    )


def _of_stream(name: str) -> _Setting:
    return _Setting(lambda: getattr(sys, name), functools.partial(setattr, sys, name))


def _go_to(folder: str) -> None:
    with suppress(OSError):  # it may be gone
        os.chdir(folder)


class _Callbacks(list[Any]):
    """Functions that are called later; a text has their number, since addresses differ."""

    @override
    def __str__(self) -> str:
        return counted(len(self), "function")


def _flushes_denormal() -> bool:
    # torch has no getter. The CPU's mode is one of Python's arithmetic too.
    return sys.float_info.min / 2 == 0.0


# Settings of the whole process, of which each rank of a job has its own.
_RANK_SETTINGS: Final[Mapping[str, _Setting]] = {
    "torch's default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's deterministic algorithms": _Setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
    ),
    "torch's number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    "torch's precision of matrix products": _Setting(
        float32_precision.of_products, float32_precision.set_of_products
    ),
    # One call sets both.
    "autograd's detection of anomalies": _Setting(
        torch.is_anomaly_enabled,
        lambda mode: torch.autograd.set_detect_anomaly(
            mode, check_nan=torch.is_anomaly_check_nan_enabled()
        ),
    ),
    "autograd's look for NaN": _Setting(
        torch.is_anomaly_check_nan_enabled,
        lambda mode: torch.autograd.set_detect_anomaly(
            torch.is_anomaly_enabled(), check_nan=mode
        ),
    ),
    "cuDNN's benchmark mode": _of_cudnn("benchmark"),
    "cuDNN's deterministic mode": _of_cudnn("deterministic"),
    "cuDNN's use of TF32": _Setting(
        float32_precision.tf32_in_cudnn, float32_precision.set_tf32_in_cudnn
    ),
}
# Settings of the whole process that ranks which are threads share.
_SETTINGS: Final[Mapping[str, _Setting]] = {
    "Python's cycle collector": _Setting(
        gc.isenabled, lambda mode: gc.enable() if mode else gc.disable()
    ),
    "Python's list of callbacks of its cycle collector": _Setting(
        lambda: _Callbacks(gc.callbacks),
        lambda before: gc.callbacks.__setitem__(slice(None), before),
    ),
}
# Settings of the thread that sets them; a rank of `sim` is a thread.
_THREAD_SETTINGS: Final[Mapping[str, _Setting]] = {
    "torch's default device": _Setting(
        lambda: getattr(torch, "get_default_device")(),  # noqa: B009  # untyped in torch
        torch.set_default_device,
    ),
    "autograd's use of several threads": _Setting(
        lambda: getattr(torch.autograd, "is_multithreading_enabled")(),  # noqa: B009
        torch.autograd.set_multithreading_enabled,
    ),
    "the CPU's flushing of denormal numbers": _Setting(
        _flushes_denormal, torch.set_flush_denormal
    ),
}
# Restored, and not judged: `with` blocks put them back, as `redirect_stdout` does, and
# blocks of ranks that are threads overlap.
_RESTORED: Final[Mapping[str, _Setting]] = {
    "sys.stdout": _of_stream("stdout"),
    "sys.stderr": _of_stream("stderr"),
    "the working directory": _Setting(working_directory, _go_to),
}


class ProcessSettings:
    """Settings and generators as they are now.

    Later calls compare them, and restore the settings. `restored_generators` restores generators.
    """

    def __init__(self) -> None:
        self._settings = _values(_SETTINGS)
        self._rank_settings = _values(_RANK_SETTINGS)
        self._restored = _values(_RESTORED)
        self._thread_settings = _values(_THREAD_SETTINGS)
        self._generators = Generators()
        self._surroundings = Surroundings()

    def changed(self) -> tuple[str, ...]:
        """Name the changed settings that all ranks of `sim` share, since they are threads."""
        return (
            *_differences(_SETTINGS, self._settings),
            *self._surroundings.changed(),
        )

    def rank_changed(self) -> tuple[str, ...]:
        """Name the changed settings that each rank has for itself, and replaced functions."""
        functions = (f"{name} is replaced" for name in relied_functions.replaced())
        return (
            *_differences(_THREAD_SETTINGS, self._thread_settings),
            *_differences(_RANK_SETTINGS, self._rank_settings),
            *self._surroundings.hooks_changed(),
            *functions,
        )

    def reseeded(self) -> tuple[str, ...]:
        """Name the generators that were seeded since; drawing from them is no seeding."""
        return self._generators.reseeded()

    def restore(self) -> None:
        """Restore all settings, and the functions that were replaced."""
        _restore(_SETTINGS, self._settings)
        _restore(_RANK_SETTINGS, self._rank_settings)
        _restore(_RESTORED, self._restored)
        _restore(_THREAD_SETTINGS, self._thread_settings)
        self._surroundings.restore()
        relied_functions.restore()


def _values(settings: Mapping[str, _Setting]) -> dict[str, Any]:
    return {name: setting.read() for name, setting in settings.items()}


def _differences(
    settings: Mapping[str, _Setting], before: Mapping[str, Any]
) -> Iterator[str]:
    for name, setting in settings.items():
        if (value := setting.read()) != before[name]:
            yield f"{name} is {value}, was {before[name]}"


def _restore(settings: Mapping[str, _Setting], before: Mapping[str, Any]) -> None:
    with changeable_flags():
        for name, setting in settings.items():
            if setting.read() != before[name]:
                setting.set(before[name])


def settings_of_ranks() -> Iterator[_Setting]:
    """Yield the settings of the process of which each rank of a job has its own."""
    yield from _RANK_SETTINGS.values()


@contextmanager
def restored_settings() -> Iterator[ProcessSettings]:
    """Restore the settings and generators of the process after a block, whatever it does."""
    settings = ProcessSettings()
    try:
        with restored_generators():
            yield settings
    finally:
        settings.restore()
