"""Functions and kernels in C++, compiled when they are first used."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import torch
from torch.utils import cpp_extension

from syncverify.errors import SyncverifyError


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

    torch keeps what it has built, and holds a file lock while it builds.

    Raises:
        NoCompilerError: It takes a C++ compiler and ninja.
    """
    try:
        cpp_extension.load(
            name="syncverify_graphs",
            sources=[str(Path(__file__).with_name("operators.cpp"))],
            extra_cflags=["-O0"],
            is_python_module=False,
        )
    except (OSError, RuntimeError) as error:
        raise NoCompilerError(
            f"expected a C++ compiler and ninja, to build operators.cpp: {error}"
        ) from error
