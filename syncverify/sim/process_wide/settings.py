"""Settings of the process, which belong to the training program.

A subject may change a setting for the length of a call. It may not leave a setting behind.
"""

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import torch
from typing_extensions import override

from syncverify.backend_flags import changeable_flags
from syncverify.plain_text import counted
from syncverify.sim.process_wide import surroundings
from syncverify.sim.process_wide.generators import Generators, restored_generators
from syncverify.trace.source_lines import working_directory

_BACKENDS: Any = torch.backends  # the stubs do not know all of its attributes


class _Parts(NamedTuple):
    """Precision of float32 numbers in each part; as text, `CUDA tf32, oneDNN ieee` for example.

    torch refuses to return the common setting after a setting of one backend or operator has
    made the parts differ. The parts are the value then.
    """

    names: tuple[str, ...]
    precisions: tuple[str, ...]

    @override
    def __str__(self) -> str:
        return ", ".join(map(" ".join, zip(*self, strict=True)))


@contextmanager
def no_collection_of_cycles() -> Iterator[None]:
    """Collect no reference cycles in a block: which finalizers are called depends on chance.

    The block sets the collector's threshold. Whether the collector is enabled is a setting of
    the subject.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Setting(NamedTuple):
    """How to read a setting, and how to set it."""

    read: Callable[[], Any]
    set: Callable[[Any], object]


def _of_parts(
    read: Callable[[], Any],
    write: Callable[[Any], object],
    flags: Mapping[str, Any],
    common: str | None = None,
) -> _Setting:
    """Return a setting of all parts, whose value is that of each part where they differ.

    `flags` are objects with an attribute `fp32_precision`, by the name in a text. `common` is set
    before the parts.
    """

    def read_all() -> Any:
        with suppress(RuntimeError):
            return read()
        parts = tuple(each.fp32_precision for each in flags.values())
        return _Parts(tuple(flags), parts)

    def write_all(value: Any) -> None:
        if not isinstance(value, _Parts):
            write(value)
            return
        if common is not None:
            write(common)
        for each, precision in zip(flags.values(), value.precisions, strict=True):
            each.fp32_precision = precision

    return _Setting(read_all, write_all)


def _attribute(owner: Any, name: str) -> _Setting:
    return _Setting(*(functools.partial(f, owner, name) for f in (getattr, setattr)))


def _go_to(folder: str) -> None:
    with suppress(OSError):  # it may be gone
        os.chdir(folder)


class _Callbacks(list[Any]):
    """Functions that are called later; a text has their number, since addresses differ."""

    @override
    def __str__(self) -> str:
        return counted(len(self), "function")


# Settings of the whole process, of which each rank of a job has its own.
RANK_SETTINGS: Final[Mapping[str, _Setting]] = {
    "torch's default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's deterministic algorithms": _Setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
    ),
    "torch's number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    # The common value behind the parts cannot be read; it was "highest" unless it was set too.
    "torch's precision of matrix products": _of_parts(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        {"CUDA": _BACKENDS.cuda.matmul, "oneDNN": _BACKENDS.mkldnn.matmul},
        "highest",
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
    "cuDNN's benchmark mode": _attribute(torch.backends.cudnn, "benchmark"),
    "cuDNN's deterministic mode": _attribute(torch.backends.cudnn, "deterministic"),
    "cuDNN's use of TF32": _of_parts(
        *_attribute(_BACKENDS.cudnn, "allow_tf32"),
        {"convolutions": _BACKENDS.cudnn.conv, "recurrent layers": _BACKENDS.cudnn.rnn},
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
    # torch has no getter. The CPU's mode is one of Python's arithmetic too.
    "the CPU's flushing of denormal numbers": _Setting(
        lambda: sys.float_info.min / 2 == 0.0, torch.set_flush_denormal
    ),
}
# Restored, and not judged: `with` blocks put them back, as `redirect_stdout` does, and
# blocks of ranks that are threads overlap.
_RESTORED: Final[Mapping[str, _Setting]] = {
    "sys.stdout": _attribute(sys, "stdout"),
    "sys.stderr": _attribute(sys, "stderr"),
    "the working directory": _Setting(working_directory, _go_to),
}


_ALL: Final = {**_SETTINGS, **RANK_SETTINGS, **_RESTORED, **_THREAD_SETTINGS}


class ProcessSettings:
    """Settings and generators as they are now.

    Later calls compare them, and restore the settings. `restored_generators` restores generators.
    """

    def __init__(self) -> None:
        self._before = {name: setting.read() for name, setting in _ALL.items()}
        self._generators = Generators()
        self._surroundings = surroundings.Surroundings()

    def changed(self) -> tuple[str, ...]:
        """Name the changed settings that all ranks of `sim` share, since they are threads."""
        return (*self._differences(_SETTINGS), *self._surroundings.changed())

    def rank_changed(self) -> tuple[str, ...]:
        """Name the changed settings that each rank has for itself, and replaced functions."""
        return (
            *self._differences(_THREAD_SETTINGS),
            *self._differences(RANK_SETTINGS),
            *self._surroundings.hooks_changed(),
            *(f"{name} is replaced" for name in surroundings.replaced_functions()),
        )

    def reseeded(self) -> tuple[str, ...]:
        """Name the generators that were seeded since; drawing from them is no seeding."""
        return self._generators.reseeded()

    def restore(self) -> None:
        """Restore all settings, and the functions that were replaced."""
        with changeable_flags():
            for name, before in self._before.items():
                if _ALL[name].read() != before:
                    _ALL[name].set(before)
        self._surroundings.restore()
        surroundings.restore_functions()

    def _differences(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            if (value := _ALL[name].read()) != self._before[name]:
                yield f"{name} is {value}, was {self._before[name]}"


@contextmanager
def restored_settings() -> Iterator[ProcessSettings]:
    """Restore the settings and generators of the process after a block, whatever it does."""
    settings = ProcessSettings()
    try:
        with restored_generators():
            yield settings
    finally:
        settings.restore()
