"""Keep a search apart from its surroundings: its result depends on the seed alone.

Hypothesis has no setting for most of them. This module and `violation_database.py` are the only
ones that use internals of Hypothesis; their tests in `tests/syncverify/search/` say which behavior
of Hypothesis they rely on.

Note [Plays inside a test]
~~~~~~~~~~~~~~~~~~~~~~~~~~
Hypothesis plays a failing test hundreds of times to make its example small, and once more to
report it. So a play inside a test judges and does no more. The diagnosis (a witness, the lines
that decide, a fix) takes seconds, and is made in the play that Hypothesis reports. A search
inside a test is a test of its own to Hypothesis; without care its examples would count as those
of the user's test.

A fuzzer such as HypoFuzz reports no play. Its failures have the violation and the replay line.
"""

import functools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Final, ParamSpec, TypeVar
from unittest.mock import patch

import torch
from hypothesis import control, statistics
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.internal.scrutineer import MONITORING_TOOL_ID, Tracer

from syncverify.playing.program.exact_arithmetic import exact_arithmetic

P = ParamSpec("P")
R = TypeVar("R")

_INDEPENDENT: Final = "syncverify-independent"
# CPython serves objects of up to 512 bytes from free lists, one list per block size.
_BLOCK_SIZES_BYTES = range(16, 513, 16)
_BLOCKS_PER_SIZE = 40


@contextmanager
def default_torch_state() -> Iterator[None]:
    """Play and judge as in a process that has just imported torch.

    A test suite may run on a default device, without gradients, or in anomaly mode; the
    subject is not responsible for that. Not reset, because no verdict depends on it:
    autocast, the default dtype, deterministic algorithms, numbers of threads.
    """
    # A device context intercepts every torch call, so it is entered only where needed.
    on_cpu = torch.get_default_device().type == "cpu"
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
        nullcontext() if on_cpu else torch.device("cpu"),
        exact_arithmetic(),
    ):
        yield


@contextmanager
def without_local_constants() -> Iterator[None]:
    """Keep constants of local source files out of the values that Hypothesis draws.

    Hypothesis mixes such constants into its draws. That helps a unit test. For a search
    that is named by its seed, another entry point or an edit of the subject would change
    the scenarios.
    """
    nothing = Constants()
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        with patch.object(providers, "_get_local_constants", lambda: nothing):
            yield
    finally:
        providers.CONSTANTS_CACHE.cache.clear()


def independent_backend() -> str:
    """Register a Hypothesis backend that makes no example from another one; return its name.

    Hypothesis' own backend makes most examples from the example before: it copies one
    choice over a similar one, up to five times in a row. That finds defects of equal
    values. But of 2,000 scenarios 570 then repeat an earlier one, most others have no word
    that the one before lacks, and one in seven runs out of choices and is thrown away.
    Nearly 5 % of thousands of pairs of features stay unseen, against 0.2 % with independent
    scenarios. Hypothesis does not mutate the draws of other backends, so its own provider
    is registered under a second name. Failing examples are shrunk without a backend.
    """
    providers.AVAILABLE_PROVIDERS.setdefault(_INDEPENDENT, providers.HypothesisProvider)
    return _INDEPENDENT


@contextmanager
def shuffled_addresses() -> Iterator[None]:
    """Change the order in memory of the objects that are allocated meanwhile.

    A program that runs twice allocates the same addresses again, so an order that comes
    from `id()` looks reproducible. Blocks that are freed here in random order make it
    differ.
    """
    sizes = [size for size in _BLOCK_SIZES_BYTES for _ in range(_BLOCKS_PER_SIZE)]
    ballast = [bytearray(size - 1) for size in sizes]
    random.Random(len(ballast)).shuffle(ballast)
    del ballast[::2]
    yield
    ballast.clear()


def is_reported() -> bool:
    """Tell whether the caller's failure is one to report: in no test, or in its last play."""
    is_tested = control.currently_in_test_context()
    return not is_tested or control.current_build_context().is_final


@contextmanager
def outside_of_tests() -> Iterator[None]:
    """Run a test of our own as if no test were around it."""
    with (
        control._current_build_context.with_value(None),  # noqa: SLF001  # no public one
        statistics.collector.with_value(None),
    ):
        yield


def unexplained(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that does the same while Hypothesis does not trace.

    Hypothesis lists lines that only failing examples run. Those of the harness would be the
    first, and tracing them makes each play three times as slow.
    """

    @functools.wraps(function)
    def untraced(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # pytest shows the user's lines
        with _without_tracer():
            return function(*args, **kwargs)

    return untraced


@contextmanager
def _without_tracer() -> Iterator[None]:
    """Switch the tracer of Hypothesis off."""
    with ExitStack() as stack:
        if sys.version_info >= (3, 12):
            tool, monitoring = MONITORING_TOOL_ID, sys.monitoring
            if monitoring.get_tool(tool) == "scrutineer":
                events = monitoring.get_events(tool)
                stack.callback(monitoring.set_events, tool, events)
                monitoring.set_events(tool, 0)
        else:
            trace = sys.gettrace()
            if isinstance(getattr(trace, "__self__", None), Tracer):
                stack.callback(sys.settrace, trace)
                sys.settrace(None)
        yield
