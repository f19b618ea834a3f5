"""Same scenario, same trace: in one process, and in any other."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import scenarios
from syncverify.subjects.subject import resolve
from syncverify.trace.records import Access
from syncverify.trace.run import Run

ROOT = Path(__file__).parents[3]
PLAIN_TENSORS = resolve("ddp").capabilities
VARYING = Capabilities(varying_accumulations=True)


def transcript(run: Run) -> list[str]:
    """Everything that a run left behind, bit for bit."""
    lines = [f"{run.backend} {run.fault}"]
    for rank, rank_run in enumerate(run.ranks):
        lines += [f"{rank} {event!r}" for event in rank_run.trace]
        lines.append(f"{rank} {rank_run.leftovers}")
        for seen in rank_run.observations:
            lines += [
                f"{rank} {seen.point} {seen.step} {seen.micro_batch} {name} {bits(g)}"
                for name, g in seen.gradients.items()
            ]
    return lines


def bits(gradient: torch.Tensor | None) -> str:
    if gradient is None:
        return "none"
    as_bytes = gradient.contiguous().reshape(-1).view(torch.uint8)
    return f"{gradient.dtype} {tuple(gradient.shape)} {bytes(as_bytes.tolist()).hex()}"


@pytest.mark.long
@settings(max_examples=5)
@given(st.data())
@pytest.mark.parametrize(
    ("name", "capabilities"), [("synchronizer", VARYING), ("ddp", PLAIN_TENSORS)]
)
def test_same_scenario_same_transcript(
    name: str, capabilities: Capabilities, data: st.DataObject
) -> None:
    scenario = data.draw(scenarios(capabilities=capabilities))
    subject = resolve(name)
    first, second = (SimBackend().run(scenario, subject) for _ in range(2))
    assert transcript(first) == transcript(second)


def in_backward(run: Run) -> Counter[tuple[str, str]]:
    """Count the operators of rank 0 in backward passes, by operator and stream."""
    return Counter(
        (event.operator, event.stream)
        for event in run.ranks[0].trace
        if isinstance(event, Access) and event.moment.phase == "backward"
    )


def test_operators_on_further_threads_of_a_rank_are_recorded() -> None:
    subject = resolve("studies.stand_ins.modes:SumsInAHook")
    specs = tuple(ParameterSpec(f"p{i}", (3,), ("R",)) for i in range(2))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (2, 1), 64)
    on_threads = replace(scenario, backward="on_threads")
    runs = [SimBackend().run(each, subject) for each in (scenario, on_threads)]
    assert [run.fault for run in runs] == [None, None]
    expected, seen = map(in_backward, runs)
    assert expected["aten.clone.default", "stream 1"] > 0
    assert seen == expected


ELSEWHERE = """
import hashlib, sys
from hypothesis import HealthCheck, given, seed, settings
from syncverify.strategies import scenarios
sys.path.insert(0, {folder!r})
from test_determinism import transcript
from syncverify.playing.sim import SimBackend
from syncverify.subjects.subject import resolve

def digest(seed_, num_examples):
    hashed = hashlib.sha256()

    @seed(seed_)
    @settings(max_examples=num_examples, database=None, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(scenarios())
    def play(scenario):
        run = SimBackend().run(scenario, resolve("synchronizer"))
        hashed.update("\\n".join(transcript(run)).encode())

    play()
    return hashed.hexdigest()

digest({before}, 3)
print(digest(3, 3))
"""


@pytest.mark.long
def test_transcripts_depend_on_no_hash_seed_and_no_earlier_run() -> None:
    """Two processes with different hashes of strings in sets and dicts.

    One plays scenarios that it has met, the other scenarios that are new to it.
    """
    folder = str(Path(__file__).parent)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ELSEWHERE.format(folder=folder, before=before)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, before in (("1", 3), ("2", 4))
    ]
    digests = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(digests[0]) == 64
    assert digests[0] == digests[1]
