"""Our class in the place of d9d's, in all of d9d's modules that have its name."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from syncverify.synchronizer import GradientSynchronizer

# The modules of d9d 0.24 with the name: where it is defined, exported and used.
MODULES = (
    "d9d.internals.grad_sync.synchronizer",
    "d9d.internals.grad_sync",
    "d9d.loop.component.gradient_manager",
)


@contextmanager
def ours() -> Iterator[None]:
    """Let d9d make our synchronizer until the block ends."""
    modules = [importlib.import_module(name) for name in MODULES]
    patches = [
        mock.patch.object(module, "GradientSynchronizer", GradientSynchronizer)
        for module in modules
    ]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
