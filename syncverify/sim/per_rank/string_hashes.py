"""Hashes of strings, which each process of a cluster computes in its own way.

Python salts them with a seed of the process, so an order by `hash(name)` differs between ranks.
Ranks that are threads share the seed. So `hash` is another function in the modules of a subject's
class and its bases. The order of a set comes from C, and stays: `gloo` and `streams` show it.
"""

import builtins
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Any
from unittest.mock import patch

from syncverify.sim.turns.scheduler import own_rank

_NUM_BYTES = 7  # one less than a hash has, so the number is positive


@contextmanager
def own_hashes(factory: Callable[..., Any]) -> Iterator[None]:
    """Give each rank hashes of strings of its own, where a subject's module calls `hash`."""
    made = inspect.getmro(factory) if inspect.isclass(factory) else (factory,)
    names = dict.fromkeys(getattr(each, "__module__", "") for each in made)
    modules = [sys.modules[name] for name in names if name in sys.modules]
    with ExitStack() as stack:
        for module in modules:
            if module is not builtins and "hash" not in vars(module):
                stack.enter_context(patch.object(module, "hash", _hash, create=True))
        yield


def _hash(value: object) -> int:
    rank = own_rank()
    if rank is not None and isinstance(value, str | bytes):
        digest = blake2b(repr((rank, value)).encode(), digest_size=_NUM_BYTES)
        return int.from_bytes(digest.digest())
    if rank is not None and type(value) is tuple:
        return builtins.hash(tuple(map(_hash, value)))
    return builtins.hash(value)
