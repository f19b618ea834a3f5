"""Files by their owner: torch, Python, the harness, or the subject.

The owner of a command asks as well, so this module imports no torch.
"""

import functools
import importlib.util
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

_SPEC = importlib.util.find_spec("torch")
if _SPEC is None or _SPEC.origin is None:
    raise ModuleNotFoundError(
        "expected torch, which is not installed; pip install torch"
    )

# Folders end with a separator: another package may be called `torchlike`.
_HARNESS = str(Path(__file__).parents[1]) + os.sep
# Adapters, planted defects and our own synchronizer are subjects, and so are their lines. The
# bases of adapters only pass calls on.
_SUBJECTS = tuple(
    str(Path(_HARNESS) / part) + os.sep for part in ("subjects", "synchronizer")
)
_BASES = str(Path(_HARNESS) / "subjects" / "adapters") + os.sep
_TORCH = str(Path(_SPEC.origin).parent) + os.sep


def _in_torch(*parts: str) -> tuple[str, ...]:
    """Return the starts of paths of some folders and files of torch."""
    return tuple(str(Path(_TORCH) / part) for part in parts)


# Models and base classes of torch's own tests, which are a part of the tests.
_TESTS_OF_TORCH = _in_torch(
    "testing/_internal/common_",
    "testing/_internal/distributed/_tensor",
    "testing/_internal/distributed/_shard",
    "testing/_internal/distributed/co",
)
# Files of these that only pass calls on.
_WRAPPERS_OF_TESTS = _in_torch(
    "testing/_internal/common_utils.py", "testing/_internal/common_distributed.py"
)
# FSDP2 is a subject that is written in Python and comes with torch.
_SHARDING = _in_torch(
    "distributed/fsdp/_fully_shard", "distributed/_composable/replicate_with_fsdp.py"
)
# Folders of torch whose lines `naming_torch` names, and files in them that only pass calls on.
_NAMED_OF_TORCH = _in_torch("amp", "distributed", "nn", "optim", "utils/checkpoint.py")
_CALLS_OF_GROUPS = _in_torch(
    "distributed/c10d_logger.py", "distributed/distributed_c10d.py"
)
_PASSING_ON = (
    *_CALLS_OF_GROUPS,
    *_in_torch("nn/modules/module.py", "optim/optimizer.py"),
)
_PROGRAM = str(Path(_HARNESS) / "playing" / "program") + os.sep
_WITH_HOOKS = (
    _PROGRAM,
    *_in_torch(
        "autograd/graph.py", "distributed/_composable", "distributed/algorithms",
        "distributed/fsdp", "nn/parallel", "utils/checkpoint.py",
    ),
)  # fmt: skip
# Parts of torch that hand devices to C++ code, print devices, or compare those of a forward with
# those of a backward: a training program may run one, and torch the other.
_NEAR_KERNELS = _in_torch(
    "_decomp", "_dynamo", "_functorch", "_higher_order_ops", "_inductor", "_ops.py",
    "_prims", "_refs", "_subclasses", "_tensor_str.py", "distributed/tensor/_dispatch.py",
    "fx", "jit", "library.py", "utils/checkpoint.py",
)  # fmt: skip
_RUNTIME = str(Path(traceback.__file__).parent)
# Installed packages lie inside the runtime's folder, and a subject may be one.
_PACKAGES = str(Path(_TORCH).parent)
# Autograd calls hooks from C++, below this function of torch: the lines that called
# `backward()` did not ask for what the engine does on its own.
ENGINE = "_engine_run_backward"
_NAME = re.compile(r"[\w-]+")  # the package at the start of a requirement
_names_torch = False


@functools.cache  # there are few files, and every operator asks about some of them
def is_subject_line(filename: str) -> bool:
    """Return whether a file is the subject's: not of torch and its helpers, Python or the harness.

    Files of torch's own tests, and of subjects that come with the harness, are the subject's.
    """
    if filename.startswith(_TESTS_OF_TORCH):
        return True
    if filename.startswith(("<", _TORCH, *helpers_of_torch())):
        return False
    if filename.startswith(_HARNESS):
        return is_harness_subject(filename)
    return filename.startswith(_PACKAGES) or not filename.startswith(_RUNTIME)


def is_own_line(filename: str) -> bool:
    """Tell whether a file is the program's own, and of no package that is installed."""
    return is_subject_line(filename) and not filename.startswith(_PACKAGES + os.sep)


def is_harness_line(filename: str) -> bool:
    """Tell whether a file is the harness's, without the subjects that come with it."""
    return filename.startswith(_HARNESS) and not is_harness_subject(filename)


def is_program_line(filename: str) -> bool:
    """Tell whether a file is of the training program that the harness plays."""
    return filename.startswith(_PROGRAM)


def is_harness_subject(filename: str) -> bool:
    """Tell whether a file is of a subject that comes with the harness."""
    return filename.startswith(_SUBJECTS) and not filename.startswith(_BASES)


@functools.cache
def helpers_of_torch() -> tuple[str, ...]:
    """Return the folders and files of the packages that torch requires, or may use.

    torch calls them within backward: `typing_extensions` wraps its deprecated functions, and
    `optree` maps over the arguments of an operator of DTensor.
    """
    from importlib import metadata  # 20 ms that the owner of a command does not need

    try:
        required = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:  # built in a checkout of torch
        required = ["optree", "sympy", "typing_extensions"]
    names = {each.group() for each in map(_NAME.match, required) if each}
    specs = [importlib.util.find_spec(name.replace("-", "_")) for name in sorted(names)]
    files = [Path(spec.origin) for spec in specs if spec is not None and spec.origin]
    return tuple(
        str(file.parent) + os.sep if file.name == "__init__.py" else str(file)
        for file in files
    )


def is_torch_line(filename: str) -> bool:
    """Tell whether a file is torch's."""
    return filename.startswith(_TORCH)


def is_call_of_group(filename: str) -> bool:
    """Tell whether a file has the functions of `torch.distributed` that issue collectives."""
    return filename.startswith(_CALLS_OF_GROUPS)


def is_engine(code: CodeType) -> bool:
    """Tell whether a function of torch calls the engine, below which hooks run."""
    return code.co_name == ENGINE and is_torch_line(code.co_filename)


def calls_by_name(code: CodeType, name: str) -> bool:
    """Return whether a call of a method comes from a Python function, and not from C++ below it.

    C++ code of torch has no frame: the frame above the method is that of a function of torch
    that does not know the method's name, such as the one that runs the engine. `code` is that of
    the nearest function above the method.
    """
    return name in code.co_names or is_subject_line(code.co_filename)


def may_hold_hooks(filename: str) -> bool:
    """Return whether the engine calls functions of a file as hooks.

    Hooks are the subject's, the training program's, or those of torch's own wrappers.
    """
    return filename.startswith(_WITH_HOOKS) or is_subject_line(filename)


@contextmanager
def naming_torch(*, is_on: bool = True) -> Iterator[None]:
    """Name torch's own lines in traces, as those of a subject, for the length of a block."""
    global _names_torch  # asked for every operator
    before, _names_torch = _names_torch, is_on
    is_named.cache_clear()
    try:
        yield
    finally:
        _names_torch = before
        is_named.cache_clear()


@functools.cache
def is_named(filename: str) -> bool:
    """Tell whether traces name the lines of a file."""
    if _names_torch and filename.startswith(_NAMED_OF_TORCH):
        return not filename.startswith(_PASSING_ON)
    if filename.startswith(_WRAPPERS_OF_TESTS):
        return False
    return filename.startswith(_SHARDING) or is_subject_line(filename)


@functools.cache
def sees_devices(filename: str) -> bool:
    """Tell whether lines of a file see simulated devices."""
    return not (is_harness_line(filename) or filename.startswith(_NEAR_KERNELS))
