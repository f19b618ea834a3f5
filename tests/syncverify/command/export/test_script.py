"""A script plays its scenario as the rank program does, in all scenarios that it can hold."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, reject, settings
from torch import nn

from syncverify.command.export.execution import played_with_methods, refuse_features
from syncverify.command.export.script import Reproduction
from syncverify.command.export.shown_gradient import shown_gradients
from syncverify.command.export.subject_text import subject_text
from syncverify.errors import UsageError
from syncverify.scenario.replay_token import Reproducer
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.strategies import scenarios
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.subjects.subject import Subject, resolve
from tests.quality.planted.updates import (
    CallsSteps,
    ReducesAfterBackward,
    ReducesBeforeLaterHooks,
)

HERE = Path(__file__).parent


def reproductions(scenario: Scenario, subject: Subject) -> list[Reproduction]:
    """Return those of the last `wait()` and of the end; none if the scenario is refused."""
    no_violation = Reproducer(property="", cause="", scenario=scenario)
    played, methods = played_with_methods(no_violation, subject)
    if played.run.fault is not None:
        assert played.judgement.refused_step is not None, played.run.fault.summary
        return []
    last = {each.moment.point: each for each in shown_gradients(played.judgement)}
    text = subject_text(subject, HERE)
    return [
        Reproduction(
            scenario,
            subject.capabilities,
            text,
            methods,
            subject.takes_count,
            shown,
            violation="",
        )
        for point, shown in last.items()
        if point in {"reduced", "unbound"}
    ]


def check_texts(scenario: Scenario) -> None:
    """On each rank, each script of a right synchronizer has to find it right."""
    num_ranks = scenario.mesh.num_ranks
    texts = texts_of_right_synchronizer(scenario)
    if not texts:
        reject()
    for text in texts:
        assert verdicts(text, num_ranks) == [True] * num_ranks, text


def texts_of_right_synchronizer(scenario: Scenario) -> list[str]:
    if scenario.backward == "on_threads":  # a thread is no simulated rank
        return []
    try:
        refuse_features(scenario)  # raises before the scenario is played
        found = reproductions(scenario, resolve("synchronizer"))
        return [each.text(without_streams=False) for each in found]
    except UsageError:
        return []


class CountSetLater(ViewBuckets):
    """Its constructor takes no count."""

    def __init__(
        self, param_groups: list[list[nn.Parameter]], bucket_size_mb: float
    ) -> None:
        super().__init__(param_groups, bucket_size_mb, 0)


def test_script_sets_a_count_that_the_constructor_does_not_take() -> None:
    mesh, placed = MeshSpec((2,), ("dp",)), ParameterSpec("p0", (3,), ("R",))
    scenario = Scenario(mesh, (placed,), (2, 3), 1 << 20)
    set_later, given_first = (
        reproductions(scenario, resolve(subject))[-1].text(without_streams=False)
        for subject in (CountSetLater, ViewBuckets)
    )
    lines = [line.strip() for line in set_later.splitlines()]
    made = lines.index("synchronizer = CountSetLater([[p0]], 1.0)")
    assert lines[made + 1 : made + 3] == [
        "synchronizer.bind()",
        "synchronizer.set_required_accumulations(2)",
    ]
    assert "synchronizer = ViewBuckets([[p0]], 1.0, 2)" in given_first
    assert "set_required_accumulations(2)" not in given_first


@pytest.mark.parametrize(
    ("subject", "is_right"),
    [
        (ReducesBeforeLaterHooks, True),
        (CallsSteps, True),
        (ReducesAfterBackward, False),
    ],
)
def test_script_updates_parameters_in_backward(subject: type, is_right) -> None:
    mesh, placed = MeshSpec((2,), ("dp",)), ParameterSpec("p0", (3,), ("R",))
    scenario = Scenario(mesh, (placed,), (2, 1), 1 << 20, update="in_backward")
    text = reproductions(scenario, resolve(subject))[0].text(without_streams=False)
    assert verdicts(text, 2) == [is_right] * 2, text


@pytest.mark.long
@settings(max_examples=6, phases=[Phase.generate])  # shrinking would take minutes
@given(scenarios(max_ranks=2))
def test_script_of_a_right_synchronizer_says_right(scenario: Scenario) -> None:
    check_texts(scenario)


@pytest.mark.nightly
@settings(max_examples=300, phases=[Phase.generate])
@given(scenarios())
def test_scripts_of_many_scenarios_say_right(scenario: Scenario) -> None:
    check_texts(scenario)


def verdicts(text: str, num_ranks: int) -> list[bool]:
    """Run `train` of a script on simulated ranks; return whether each rank found all right."""
    namespace: dict[str, Any] = {"__name__": "script", "__file__": str(HERE / "script")}
    with pytest.MonkeyPatch.context() as patch:
        # A script adds the folder of the subject.
        patch.setattr(sys, "path", [*sys.path])
        exec(compile(text, "script", "exec"), namespace)
    recorders = [RankRecorder(records_accesses=False) for _ in range(num_ranks)]
    machine = SimulatedMachine(num_ranks, recorders=recorders)
    results: dict[int, bool] = {}

    def program(rank: int) -> None:
        results[rank] = namespace["train"](rank)

    threads, stall = machine.run(program)
    assert stall is None
    errors = [thread.error for thread in threads if thread.error]
    assert not errors, errors
    return [results[rank] for rank in range(num_ranks)]
