"""Functions of Python that differ between the processes of a cluster: hashes, pauses and clocks.

Each is replaced where a module calls it by name. A name that a subject imported before, as in
`from time import sleep`, keeps its meaning.
"""

import builtins
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Any, Final
from unittest.mock import patch

from syncverify.sim.turns.decisions import SECONDS_BETWEEN_POLLS
from syncverify.sim.turns.scheduler import own_rank, pass_seconds, passed_seconds

_NUM_BYTES = 7  # one less than a hash has, so the number is positive
_SHORTENED_SECONDS: Final = 1e-5
_CLOCKS: Final = ("monotonic", "perf_counter", "time")


@contextmanager
def own_hashes(factory: Callable[..., Any]) -> Iterator[None]:
    """Give each rank hashes of strings of its own, where a subject's module calls `hash`.

    Python salts them with a seed of the process, so an order by `hash(name)` differs between ranks.
    Ranks that are threads share the seed. So `hash` is another function in the modules of a
    subject's class and its bases. The order of a set comes from C, and stays: `gloo` and `streams`
    show it.
    """
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


@contextmanager
def short_pauses() -> Iterator[None]:
    """Shorten the pauses of ranks between polls, for the length of a block.

    A very long delay has a thousand polls. The clocks of the rank go on as if it had waited.
    """
    sleep = time.sleep

    def pause(seconds: float) -> None:
        is_short = own_rank() is not None and 0 < seconds <= SECONDS_BETWEEN_POLLS
        sleep(_SHORTENED_SECONDS if is_short else seconds)
        if is_short:
            pass_seconds(seconds)

    clocks: dict[str, Any] = {name: _ahead(getattr(time, name)) for name in _CLOCKS}
    with patch.multiple(time, sleep=pause, **clocks):
        yield


def _ahead(clock: Callable[[], float]) -> Callable[[], float]:
    """Return a clock that the time of a rank's pauses is added to."""
    return lambda: clock() + passed_seconds()
