"""Recorded violations replay bit for bit, here and in a fresh process.

Among them are deadlocks, mismatches and exceptions, under random schedules. 100 of 100:
pytest tests/quality/test_replays.py --hypothesis-profile=nightly
"""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, seed, settings

from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.scenario.replay_token import Reproducer, decode, encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.sim.turns.decisions import Decisions, SchedulePolicy
from syncverify.strategies import scenarios, schedules
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.subjects.bugbank.catalogue import entry_of
from syncverify.subjects.subject import resolve
from syncverify.trace.run import Run
from tests.quality.planted import reports, timing

ROOT = Path(__file__).parents[2]
FULL = (100, 5)  # reproducers in all, and of one subject at most
USUAL = (8, 1)


class SkipsCollectives(ViewBuckets):
    """A deadlock."""

    def launch(self, bucket: Bucket) -> None:
        if dist.get_rank() == 0:
            super().launch(bucket)


class Raises(ViewBuckets):
    """An exception, on one rank."""

    def wait(self) -> None:
        if dist.get_rank() == 1:
            raise ValueError("no bucket for this rank")
        super().wait()


SUBJECTS: dict[str, type[Any]] = {
    subject.__name__: subject
    for subject in (
        *(entry_of(each.name).subject for each in reports.REPORTS),
        timing.FallsThrough,
        timing.FirstComeIsRankZero,
        SkipsCollectives,
        Raises,
    )
}
# Name of the subject, token, and digest of all that the run left behind.
Recorded = dict[str, str]


def digest(run: Run, violations: list[Violation], decisions: Decisions) -> str:
    hashed = hashlib.sha256(f"{run.fault}{violations}{decisions.schedule}".encode())
    for rank in run.ranks:
        hashed.update(f"{rank.trace}{rank.leftovers}".encode())
        for seen in rank.observations:
            hashed.update(f"{seen.point}{seen.step}{seen.micro_batch}".encode())
            for name, value in seen.gradients.items():
                hashed.update(f"{name}{value is None}".encode())
                if value is not None:
                    hashed.update(bytes(value.reshape(-1).view(torch.uint8).tolist()))
    return hashed.hexdigest()


def play(
    subject: str, scenario: Scenario, schedule: Schedule
) -> tuple[list[Violation], Schedule, str]:
    resolved, decisions = (
        resolve(SUBJECTS[subject]),
        Decisions(SchedulePolicy(schedule)),
    )
    run = SimBackend().run(scenario, resolved, decisions)
    violations = check(scenario, run, resolved.capabilities)
    return violations, decisions.schedule, digest(run, violations, decisions)


def record(subject: str, most: int) -> list[Recorded]:
    """Record violations of random scenarios under random schedules."""
    recorded: dict[str, Recorded] = {}
    capabilities = resolve(SUBJECTS[subject]).capabilities

    @seed(0)
    @settings(
        max_examples=30, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(scenarios(max_ranks=4, capabilities=capabilities), schedules(60))
    def meet(scenario: Scenario, drawn: Schedule) -> None:
        if len(recorded) < most and scenario.mesh.num_ranks > 1:
            violations, schedule, digested = play(subject, scenario, drawn)
            for first in violations[:1]:
                token = encode(
                    Reproducer(first.property, first.cause, scenario, schedule)
                )
                recorded[token] = {
                    "subject": subject,
                    "token": token,
                    "digest": digested,
                }

    meet()
    return list(recorded.values())


@pytest.fixture(scope="module")
def reproducers() -> list[Recorded]:
    is_nightly = settings().max_examples >= 1000
    total, most = FULL if is_nightly else USUAL
    subjects = list(SUBJECTS) if is_nightly else list(SUBJECTS)[-10:]
    found = [entry for subject in subjects for entry in record(subject, most)]
    assert len(found) >= total
    return found[-total:]


def replayed(entry: Recorded) -> str:
    reproducer = decode(entry["token"])
    return play(entry["subject"], reproducer.scenario, reproducer.schedule)[2]


@pytest.mark.long
def test_recorded_violations_are_of_many_kinds(reproducers: list[Recorded]) -> None:
    found = [decode(entry["token"]) for entry in reproducers]
    kinds = Counter((reproducer.property, reproducer.cause) for reproducer in found)
    causes = {cause for _, cause in kinds}
    assert causes >= {"deadlock", "collective_mismatch", "raised_ValueError"}
    assert sum(reproducer.schedule.choices != () for reproducer in found) > 1


ELSEWHERE = """
import json, sys
from tests.quality.test_replays import replayed
print(json.dumps([replayed(entry) for entry in json.load(sys.stdin)]))
"""


@pytest.mark.long
def test_every_recorded_violation_replays_in_a_fresh_process(
    reproducers: list[Recorded],
) -> None:
    """Where sets and dicts of strings hash differently, with or without xdist here."""
    answered = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "17"},
        input=json.dumps(reproducers),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answered.stdout) == [entry["digest"] for entry in reproducers]
