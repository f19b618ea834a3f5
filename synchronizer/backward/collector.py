"""The hook in C++, which collects gradients until Python has to count them.

The hook of each gradient is called by autograd, between kernels that fill the caches, where
Python is slow. The one in C++ keeps the number of a parameter, and calls Python where

    * a backward begins, or goes on in an outer or an inner one,
    * a bucket misses no further gradient, or may take none,
    * the gradient is undefined.

Python then counts the collected gradients in their order. They are counted before anything
else that depends on the counts, so all else is the same as with the hook in Python. In a step
that started with None, the hook also copies each gradient into its view.
"""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from filelock import FileLock  # which torch requires

from syncverify.synchronizer.contract.errors import InvalidArgumentError


class Collector(Protocol):
    """The numbers of parameters with gradients that are not counted yet."""

    def hook(self, number: int) -> Callable[[torch.Tensor], None]:
        """Return the hook of a parameter, for the time after its accumulation."""

    def set_places(
        self,
        buckets: Sequence[int],
        views: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
    ) -> None:
        """Set the bucket, the view and the `.grad` of each parameter, by its number."""

    def start(self, backward: int, missing: Sequence[int], takes_over: bool) -> None:  # noqa: FBT001  # C++
        """Collect gradients of a backward, but for the last one that a bucket misses.

        `missing` has the number of gradients that each bucket misses; 0 collects none for it.
        `takes_over` tells whether the step has started with None in every `.grad`.
        """

    def stop(self) -> None:
        """Forget what was collected, and collect nothing until the next start."""

    def take(self) -> list[int]:
        """Return what was collected, in its order, and forget it."""


def new_collector(count: Callable[[int], None]) -> Collector:
    """Make a collector that collects nothing before its start.

    `count` counts all that is collected, and then the parameter of the given number.
    """
    return cast("Collector", extension().Collector(count))


@functools.cache
def extension() -> Any:
    """Build the hook, once for all processes of a user, and load it.

    Raises:
        InvalidArgumentError: It cannot be built here.
    """
    # No import at the top: where CUDA is installed and no GPU is there, torch logs that then.
    from torch.utils import cpp_extension

    source = str(Path(__file__).with_name("collector.cpp"))
    try:
        folder = build_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "one_at_a_time"):
            # A build that was killed leaves torch's lock, and the next one would wait for ever.
            # Our lock ends with its process, so nobody builds while we hold it.
            (folder / "lock").unlink(missing_ok=True)
            return cpp_extension.load(
                "syncverify_collector", [source], build_directory=str(folder)
            )
    except (OSError, RuntimeError) as error:
        raise InvalidArgumentError(
            "the hook in C++ cannot be built",
            expected="a C++ compiler and ninja, for torch.utils.cpp_extension",
            got=str(error).splitlines()[0],
            hint='SynchronizerConfig(gradient_hook="python") needs neither',
        ) from error


def build_folder() -> Path:
    """Return where the hook is built, for this torch."""
    from torch.utils import cpp_extension

    default = cpp_extension.get_default_build_root
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or default())
    return root / f"syncverify-collector-{torch.__version__}"
