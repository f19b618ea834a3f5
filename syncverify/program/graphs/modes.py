"""Modes of the engine that change its accumulation or its checks."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from syncverify.program.graphs.losses import Losses


def create_graph(losses: Losses) -> None:
    """Accumulate gradients with a graph: out of place, so `.grad` becomes a new tensor."""
    _use_up_cycle_warning()
    losses.total().backward(create_graph=True)


def anomaly(losses: Losses) -> None:
    """Detect anomalies except NaN: torch cannot look for NaN in a DTensor."""
    with _DETECTION.on():
        losses.total().backward()


class _SharedDetection:
    """torch's switch of anomaly detection, shared by ranks on threads of one process.

    The switch belongs to the process. Each rank may turn it on, and the last rank to leave
    its block turns it off.
    """

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


@functools.cache
def _use_up_cycle_warning() -> None:
    """Use up torch's warning that a graph and its gradient refer to each other.

    torch warns once per process, and tests treat warnings as errors. The reference cycle is
    harmless here: subjects drop the graph with the gradient, and Python's garbage collector
    frees the rest.
    """
    leaf = torch.ones((), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        leaf.clone().backward(create_graph=True)
    leaf.grad = None
