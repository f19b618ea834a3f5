"""Functions and kernels in C++, compiled when they are first used."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from filelock import FileLock
from torch.utils import cpp_extension

from syncverify.errors import SyncverifyError

_BUILD_TIMEOUT_SECONDS = 600.0  # of another process that compiles; it takes a minute


class NoCompilerError(SyncverifyError):
    """The operators in C++ cannot be compiled here."""


def cpp_function(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a `torch::autograd::Function`."""
    load_operators()
    product: torch.Tensor = torch.ops.syncverify_graphs.product(local, constant)
    return product.to(torch.float32).sum()


def cpp_kernel(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a kernel that is called under `AutoDispatchBelowADInplaceOrView`."""
    load_operators()
    product: torch.Tensor = torch.ops.syncverify_graphs.kernel(local, constant)
    return product.to(torch.float32).sum()


IN_CPP = frozenset({cpp_function.__name__, cpp_kernel.__name__})


def prepare(uses: Iterable[str]) -> None:
    """Compile what is used, if anything is.

    A rank that compiles looks as if it hung: its process waits for the compiler.

    Args:
        uses: Names of uses of parameters.

    Raises:
        NoCompilerError: It takes a C++ compiler and ninja.
    """
    if not IN_CPP.isdisjoint(uses):
        load_operators()


@functools.cache
def load_operators() -> None:
    """Compile the operators, once for all processes of a user, and load them.

    Raises:
        NoCompilerError: It takes a C++ compiler and ninja.
    """
    folder = _build_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "one_at_a_time", timeout=_BUILD_TIMEOUT_SECONDS):
            # torch's own lock outlives a process that was killed while it compiled, and
            # is then waited for without an end. The operating system takes back this one,
            # and who holds it knows that nobody compiles.
            (folder / "lock").unlink(missing_ok=True)
            cpp_extension.load(
                name="syncverify_graphs",
                sources=[str(Path(__file__).with_name("operators.cpp"))],
                extra_cflags=["-O0"],
                build_directory=str(folder),
                is_python_module=False,
            )
    except (OSError, RuntimeError) as error:
        raise NoCompilerError(
            f"expected a C++ compiler and ninja, to build operators.cpp: {error}"
        ) from error


def _build_folder() -> Path:
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    return Path(root or cpp_extension.get_default_build_root()) / (
        f"syncverify-{torch.__version__}"
    )
