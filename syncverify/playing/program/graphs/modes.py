"""Modes of the engine that change its accumulation or its checks."""

from __future__ import annotations

import functools
import warnings

import torch

from syncverify.playing.program.graphs.losses import Losses


def create_graph(losses: Losses) -> None:
    """Accumulate gradients with a graph: out of place, so `.grad` becomes a new tensor."""
    _use_up_cycle_warning()
    losses.total().backward(create_graph=True)


def anomaly(losses: Losses) -> None:
    """Detect anomalies except NaN: torch cannot look for NaN in a DTensor."""
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        losses.total().backward()


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
