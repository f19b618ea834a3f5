"""Rigs: the sources of the runs that methods judge. Each run is played once for all."""

import os
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final
from unittest import mock

from torch import nn

from studies.comparison.cases import Case
from studies.comparison.methods.method import RigName
from studies.comparison.one_worker import OneWorker
from studies.comparison.training import trained
from studies.stand_ins import idle_streams
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.scenario.scenario import Scenario
from syncverify.search.isolation import shuffled_addresses
from syncverify.subjects.subject import Subject, SubjectFactory
from syncverify.subjects.subject_api import Synchronizer
from syncverify.trace.run import Run

_DETAIL = "TORCH_DISTRIBUTED_DEBUG"
# Places that are one process, and the module of each.
_WORKERS: Final[dict[RigName, str]] = {
    "threads": "studies.comparison.threads",
    "local tensors": "studies.comparison.local_tensors",
    "gloo with hashes": "studies.comparison.hashes",
}


@dataclass(frozen=True, slots=True)
class OnCpu:
    """Makes a synchronizer in a process that has idle stand-ins for streams."""

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


class Rigs(ExitStack):
    """All sources of runs; workers start on first use and stay."""

    def __init__(self) -> None:
        super().__init__()
        self._sim = SimBackend()
        self._gloo, self._detailed = GlooBackend(), GlooBackend()
        self._workers = {
            name: OneWorker(name, module) for name, module in _WORKERS.items()
        }
        for backend in (self._gloo, self._detailed):
            self.enter_context(closing(backend))
        for worker in self._workers.values():
            self.enter_context(closing(worker))

    def play(self, name: RigName, case: Case, subject: Subject) -> Judgement:
        """Play a case.

        Args:
            name: The rig.
            case: The case.
            subject: Defect or twin of the case.

        Returns:
            The run, ready to be judged.
        """
        small = case.reproducer.scenario
        scenario = small if name == "sim" else trained(small)
        again = None
        if name == "sim" and _is_about_chance(case):
            with shuffled_addresses():
                again = self._run(name, case, scenario, subject)
        run = self._run(name, case, scenario, subject)
        return Judgement(
            scenario, run, reference(scenario, subject.capabilities), again
        )

    def _run(
        self, name: RigName, case: Case, scenario: Scenario, subject: Subject
    ) -> Run:
        if name in {"sim", "sim, trained"}:
            return self._sim.run(scenario, subject, case.reproducer.schedule)
        on_cpu, twin = _on_cpu(subject), _on_cpu(case.twin)
        if name in self._workers:
            return self._workers[name].run(scenario, on_cpu, trusted=twin)
        if name == "gloo":
            return self._gloo.run(scenario, on_cpu)
        with mock.patch.dict(os.environ, {_DETAIL: "DETAIL"}):  # workers inherit it
            return self._detailed.run(scenario, on_cpu)


def _on_cpu(subject: Subject) -> Subject:
    return replace(subject, factory=OnCpu(subject.factory))


def _is_about_chance(case: Case) -> bool:
    return case.reproducer.property == subject_is_deterministic.__name__
