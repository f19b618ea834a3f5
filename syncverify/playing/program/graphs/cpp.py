"""Functions and kernels in C++, compiled on first use."""

import functools
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.processes.owner_link import Waits, tell_owner

_WAIT_SECONDS = 10.0
_NUM_WAITS = 60  # another process may compile, which takes half a minute or more


class NoCompilerError(EnvironmentNotSupportedError):
    """The operators in C++ cannot be compiled here."""


def cpp_function(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a `torch::autograd::Function`."""
    load_operators()
    product: torch.Tensor = torch.ops.syncverify_graphs.product(local, constant)
    return product.to(torch.float32).sum()


def cpp_kernel(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a kernel that runs under `AutoDispatchBelowADInplaceOrView`."""
    load_operators()
    product: torch.Tensor = torch.ops.syncverify_graphs.kernel(local, constant)
    return product.to(torch.float32).sum()


IN_CPP = frozenset({cpp_function.__name__, cpp_kernel.__name__})


def prepare(uses: Iterable[str]) -> None:
    """Compile the operators before a run, if the run has a word of `USES` in C++.

    A rank that compiles in a run looks as if it hung, since its process waits for the
    compiler.
    """
    if not IN_CPP.isdisjoint(uses):
        load_operators()


@functools.cache
def load_operators() -> None:
    """Compile the operators, once for all processes of a user, and load them."""
    # No import at the top: where CUDA is installed and no GPU is there, torch logs that then.
    from torch.utils import cpp_extension

    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    root = root or cpp_extension.get_default_build_root()
    folder = Path(root) / f"syncverify-{torch.__version__}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _acquired(FileLock(folder / "one_at_a_time")):
            # torch's own lock is a file that outlives a process killed while it compiles;
            # the next process then waits for ever. The operating system releases our lock
            # with its process, so its holder may delete torch's lock: no process compiles.
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


def _acquired(lock: FileLock) -> AbstractContextManager[object]:
    """Acquire a lock, and tell the owner now and then that this process waits for another."""
    for _ in range(_NUM_WAITS):
        tell_owner(Waits)
        with suppress(Timeout):
            return lock.acquire(timeout=_WAIT_SECONDS)
    raise Timeout(lock.lock_file)
