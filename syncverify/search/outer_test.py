"""The Hypothesis test of a user around a play, or around a whole search.

Note [Plays inside a test]
~~~~~~~~~~~~~~~~~~~~~~~~~~
Hypothesis plays a failing test hundreds of times to make its example small, and once more to
report it. So a play inside a test judges and does no more. The diagnosis (a witness, the lines
that decide, a fix) takes seconds, and is made in the play that Hypothesis reports. A search
inside a test is a test of its own to Hypothesis; without care its examples would count as those
of the user's test.

A fuzzer such as HypoFuzz reports no play. Its failures have the violation and the replay line.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from hypothesis import control, statistics
from hypothesis.internal.scrutineer import MONITORING_TOOL_ID, Tracer

P = ParamSpec("P")
R = TypeVar("R")


def is_reported() -> bool:
    """Tell whether the caller's failure is one to report: in no test, or in its last play."""
    if not control.currently_in_test_context():
        return True
    return control.current_build_context().is_final


@contextmanager
def outside_of_tests() -> Iterator[None]:
    """Run a test of our own as if no test were around it."""
    with (
        control._current_build_context.with_value(None),  # noqa: SLF001  # no public one
        statistics.collector.with_value(None),
    ):
        yield


def unexplained(function: Callable[P, R]) -> Callable[P, R]:
    """Keep the lines of a function out of the lines by which Hypothesis explains a failure.

    Hypothesis lists lines that only failing examples run. Those of the harness would be the
    first, and tracing them makes each play three times as slow.

    Returns:
        A function that does the same while Hypothesis does not trace.
    """

    @functools.wraps(function)
    def untraced(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # pytest shows the user's lines
        with _without_tracer():
            return function(*args, **kwargs)

    return untraced


@contextmanager
def _without_tracer() -> Iterator[None]:
    if sys.version_info >= (3, 12):
        with _without_events(sys.monitoring):
            yield
        return
    trace = sys.gettrace()
    if not isinstance(getattr(trace, "__self__", None), Tracer):
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)


@contextmanager
def _without_events(monitoring: Any) -> Iterator[None]:
    """Switch the events of Hypothesis' tracer off; `monitoring` is `sys.monitoring`."""
    if monitoring.get_tool(MONITORING_TOOL_ID) != "scrutineer":
        yield
        return
    events = monitoring.get_events(MONITORING_TOOL_ID)
    monitoring.set_events(MONITORING_TOOL_ID, 0)
    try:
        yield
    finally:
        monitoring.set_events(MONITORING_TOOL_ID, events)
