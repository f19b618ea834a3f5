"""Where the runs come from that methods judge; each is played once for all methods."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Self

from torch import nn

from comparison import idle_streams
from comparison.cases import Case
from comparison.methods.method import RigName
from comparison.threads import ThreadsBackend
from comparison.training import trained
from strategies.disturbance import disturbed_addresses
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.oracle import reference
from syncverify.properties.determinism import subject_is_deterministic
from syncverify.properties.judgement import Judgement
from syncverify.run import Run
from syncverify.scenario import Scenario
from syncverify.sim.decisions import Decisions, Following
from syncverify.subject import Subject, SubjectFactory, Synchronizer

_DETAIL = "TORCH_DISTRIBUTED_DEBUG"


@dataclass(frozen=True, slots=True)
class OnCpu:
    """Makes a synchronizer in a process where streams are idle."""

    factory: SubjectFactory

    def __call__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> Synchronizer:
        """Install the streams first."""
        idle_streams.install()
        return self.factory(param_groups, bucket_size_mb, require_accumulations)


class Rigs:
    """All places where runs come from, opened on first use and kept warm."""

    def __init__(self) -> None:
        self._sim = SimBackend()
        self._threads = ThreadsBackend()
        self._gloo, self._detailed = GlooBackend(), GlooBackend()
        self._open = ExitStack()
        for backend in (self._threads, self._gloo, self._detailed):
            self._open.enter_context(closing(backend))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def play(self, name: RigName, case: Case, subject: Subject) -> Judgement:
        """Play a case.

        Args:
            name: Where.
            case: What.
            subject: Its defect, or its twin.

        Returns:
            The run, ready to be judged.
        """
        small = case.recording.scenario
        scenario = small if name == "sim" else trained(small)
        again = None
        if name == "sim" and _is_about_chance(case):
            with disturbed_addresses():
                again = self._run(name, case, scenario, subject)
        run = self._run(name, case, scenario, subject)
        return Judgement(
            scenario, run, reference(scenario, subject.capabilities), again
        )

    def _run(
        self, name: RigName, case: Case, scenario: Scenario, subject: Subject
    ) -> Run:
        if name in {"sim", "sim, trained"}:
            decisions = Decisions(Following(case.recording.schedule))
            return self._sim.run_scheduled(scenario, subject, decisions)
        on_cpu = replace(subject, factory=OnCpu(subject.factory))
        if name == "threads":
            return self._threads.run(scenario, on_cpu)
        if name == "gloo":
            return self._gloo.run(scenario, on_cpu)
        with _environment(_DETAIL, "DETAIL"):  # for workers that start now
            return self._detailed.run(scenario, on_cpu)


def _is_about_chance(case: Case) -> bool:
    return case.recording.property == subject_is_deterministic.__name__


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
