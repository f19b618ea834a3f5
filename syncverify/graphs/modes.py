"""Modes of the engine, which change how it accumulates or what it checks."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from syncverify.graphs.losses import Losses


def create_graph(losses: Losses) -> None:
    """Accumulate gradients that have a graph: out of place, so that `.grad` is another."""
    _warn_of_cycles()
    losses.total().backward(create_graph=True)


def anomaly(losses: Losses) -> None:
    """Detect anomalies, but for NaN: torch cannot look for NaN in a DTensor."""
    with _DETECTION.on():
        losses.total().backward()


class _SharedDetection:
    """torch's switch for the whole process, which ranks on threads hold together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_users = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Detect anomalies until the last of all blocks ends."""
        self._enter(1)
        try:
            yield
        finally:
            self._enter(-1)

    def _enter(self, change: int) -> None:
        with self._lock:
            self._num_users += change
            torch.autograd.set_detect_anomaly(self._num_users > 0, check_nan=False)


_DETECTION = _SharedDetection()


def ignore_reports_of_anomalies() -> None:
    """Let torch say nothing, in this process, of nodes on the way of an error.

    Steps fail by design here, and only processes of ours may do so: a user's own wants
    to hear of anomalies.
    """
    warnings.filterwarnings("ignore", "Error detected in ", UserWarning)


@functools.cache
def _warn_of_cycles() -> None:
    """Let torch say once, to nobody, that a graph and its gradient refer to each other.

    Subjects drop the graph with the gradient, and Python's collector finds the rest.
    """
    leaf = torch.ones((), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        leaf.clone().backward(create_graph=True)
    leaf.grad = None
