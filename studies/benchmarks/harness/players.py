"""Players of scenarios: the harness with all of its checks, and its peers."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import torch

from studies.benchmarks.harness.threads import play_on_threads
from syncverify.judge.properties import check
from syncverify.judge.reference import reference
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.program.model import build_model
from syncverify.playing.sim import SimBackend
from syncverify.processes.process_state import LocalProcess
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run


class BrokenRunError(Exception):
    """A player did not complete the measured run, or a property does not hold."""


def play_simulated(scenarios: Sequence[Scenario], subject: Subject) -> None:
    """Run and judge on `sim`, as a search does, with an empty cache of references."""
    reference.cache_clear()
    backend = SimBackend()
    for scenario in scenarios:
        judge(scenario, backend.run(scenario, subject), subject)


def judge(scenario: Scenario, run: Run, subject: Subject) -> None:
    """Check all properties.

    Raises:
        BrokenRunError: A property does not hold, so the time would be of another run.
    """
    found = check(scenario, run, subject.capabilities)
    if found:
        raise BrokenRunError(f"{found[0].property}: {found[0].summary}")


def play_recorded(scenarios: Sequence[Scenario], subject: Subject) -> None:
    """Run on `sim` as a search does, and judge nothing.

    Raises:
        BrokenRunError: A run did not reach its end.
    """
    backend = SimBackend()
    for scenario in scenarios:
        fault = backend.run(scenario, subject).fault
        if fault is not None:
            raise BrokenRunError(fault.summary)


def play_threaded(scenarios: Sequence[Scenario], subject: Subject) -> None:
    """Run the rank programs on torch's threaded process group, and check nothing."""
    for scenario in scenarios:
        play_on_threads(scenario, subject)


def play_spawned(scenarios: Sequence[Scenario], subject: Subject) -> None:
    """Start new gloo processes for every scenario."""
    for scenario in scenarios:
        with closing(GlooBackend()) as backend:
            play_on(backend, [scenario], subject)


def play_on(
    backend: GlooBackend, scenarios: Sequence[Scenario], subject: Subject
) -> None:
    """Run on worker processes that stay, and judge nothing.

    Raises:
        BrokenRunError: A run did not reach its end.
    """
    for scenario in scenarios:
        fault = backend.run(scenario, subject).fault
        if fault is not None:
            raise BrokenRunError(fault.summary)


def play_plain(scenarios: Sequence[Scenario]) -> None:
    """Run forward and backward of each micro-batch, rank after rank, and record nothing.

    Losses are those of the rank programs, with the gradients of ordinary tensors: no player
    can do with less.
    """
    for scenario in scenarios:
        for rank in range(scenario.mesh.num_ranks):
            model = build_model(
                scenario, rank=rank, device=torch.device("cpu"), meshes=None
            )
            for step, count in enumerate(scenario.accumulations):
                for micro_batch in range(count):
                    model.loss(step=step, micro_batch=micro_batch).backward()


def seconds_of_cores(step: Callable[[], object]) -> float:
    """Return the CPU time that a step takes in this process and its live descendants."""
    # The ranks of gloo are children of a child, the template that forks them.
    descendants = LocalProcess(os.getpid())
    before = descendants.work_of_descendants().seconds + time.process_time()
    step()
    own = time.process_time()
    return own + descendants.work_of_descendants().seconds - before
