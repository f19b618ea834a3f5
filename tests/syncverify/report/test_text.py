"""Whole texts of reports."""

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest

from syncverify.judge.evidence import Event, WrongGradient
from syncverify.judge.ordering.races import Race
from syncverify.judge.violation import Violation
from syncverify.report.report import Report
from syncverify.report.run import diagnosis, explanation_of
from syncverify.report.text import scenario_lines, verdict
from syncverify.scenario.replay_token import decode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Decision, Schedule
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import (
    FoundViolation,
    NoWitness,
    RelatedViolation,
    Witness,
)
from syncverify.trace.records import Access, Moment
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import SourceLine
from tests.programs import one_parameter

SCENARIO = Scenario(
    MeshSpec((2, 2), ("dp", "tp")),
    (
        ParameterSpec("p0", (5,), ("R", "S0"), "bfloat16", "float32"),
        ParameterSpec("p1", (), None, requires_grad=False, group=1),
    ),
    (2, 1),
    2**20,
)
SENT = Event("all_reduce SUM of 3 x float32 over ranks [0, 2], at a.py:1")
VIOLATION = Violation(
    property="gradient_equals_reference",
    cause="rank_contribution_missing",
    summary="gradient of 'p0' on rank 0, step 0 is wrong: rank 2 is missing",
    ranks=(0, 2),
    parameters=("p0",),
    evidence=WrongGradient(
        rank=0, parameter="p0", local_shape=(3,), contributing_ranks=(0, 2),
        reduction="sum", expected=[1.0, -2.5, 1048576.0], observed=[1.0, 0.0, 3e-05],
        explanation="rank 2 is missing", events=(SENT,), is_proven=False,
    ),
)  # fmt: skip
ENTRY = FoundViolation(VIOLATION, SCENARIO, is_smallest=True)
REPORT = Report(
    subject="mine:Sync",
    backend="sim",
    seed=7,
    examples=20,
    seconds=1.25,
    coverage={"ranks": {"4": 20}},
    violations=(ENTRY,),
)


def violation_json(entry: FoundViolation) -> dict[str, Any]:
    return explanation_of(entry, subject="mine:Sync", backend="sim").to_json()


def test_diagnosis_has_violation_values_place_and_replay_line() -> None:
    assert (
        diagnosis(REPORT)
        == f"""\
VIOLATION: gradient_equals_reference (rank_contribution_missing)
  After `wait()`, every reduced gradient equals naive DDP's, exactly.

  gradient of 'p0' on rank 0, step 0 is wrong: rank 2 is missing
  expected:   [1, -2.5, 1048576]
  observed:   [1, 0, 3e-05]
  collective: all_reduce SUM of 3 x float32 over ranks [0, 2], at a.py:1
  seen on:    ranks 0, 2; parameter p0

  smallest scenario: 4 ranks, mesh (dp=2, tp=2)
    micro-batches per step: 2, 1; bucket cap 1048576 bytes
    p0: shape (5,), bfloat16, gradient in float32, placements (Replicate, Shard(0)), group 0
    p1: shape (), float32, ordinary tensor, not reduced, frozen, group 1

  cause:      rank_contribution_missing, likely: no other known mistake gives this value
  hint:       reduce every bucket, over every mesh axis on which its parameters are Replicate, and wait for it
  replay:     syncverify replay {ENTRY.token} mine:Sync

1 VIOLATION: mine:Sync (20 scenarios on sim, seed 7, 1.2 s)"""
    )


def test_several_violations_are_numbered() -> None:
    other = FoundViolation(replace(VIOLATION, cause="stale"), SCENARIO)
    lines = diagnosis(replace(REPORT, violations=(ENTRY, other))).splitlines()
    titles = [line for line in lines if line.startswith("VIOLATION")]
    assert titles == [
        "VIOLATION 1 of 2: gradient_equals_reference (rank_contribution_missing)",
        "VIOLATION 2 of 2: gradient_equals_reference (stale)",
    ]
    assert lines[-1] == "2 VIOLATIONS: mine:Sync (20 scenarios on sim, seed 7, 1.2 s)"


def test_timing_that_a_violation_needs_is_reported() -> None:
    decisions = (
        Decision("rank", 2, 0, "rank 0 moves next"),
        Decision("rank", 2, 1, "rank 1 moves next"),
    )
    timed = replace(ENTRY, decisions=decisions)
    lines = explanation_of(timed, subject="ddp", backend="sim").text().splitlines()
    assert [line for line in lines if "timing" in line] == [
        "    timing, decision 1: rank 1 moves next"
    ]
    assert decode(timed.token).schedule == Schedule((0, 1))
    assert violation_json(timed)["schedule"] == [0, 1]


@pytest.mark.parametrize(
    ("examples", "violations", "words"),
    [
        (20, (), "NO VIOLATION: mine:Sync held all properties"),
        (0, (), "NOTHING VERIFIED: mine:Sync"),
        (20, (ENTRY,), "1 VIOLATION: mine:Sync"),
        (20, (ENTRY, ENTRY), "2 VIOLATIONS: mine:Sync"),
    ],
)
def test_verdict_counts_violations_and_scenarios(
    examples: int, violations: tuple[FoundViolation, ...], words: str
) -> None:
    report = replace(REPORT, examples=examples, violations=violations)
    assert verdict(report) == f"{words} ({examples} scenarios on sim, seed 7, 1.2 s)"


def test_many_parameters_that_differ_in_name_alone_share_a_line() -> None:
    specs = [
        *(ParameterSpec(f"p{number}", (3,), ("R",)) for number in range(4)),
        *(ParameterSpec(name, (2,), ("R",)) for name in ("p4", "p5")),
    ]
    scenario = Scenario(MeshSpec((2,), ("dp",)), tuple(specs), (1,), 64)
    _, _, *shown = scenario_lines(scenario)
    alike = "float32, placements (Replicate), group 0"
    assert shown == [
        f"  p0 to p3, 4 parameters: shape (3,), {alike}",
        f"  p4: shape (2,), {alike}",
        f"  p5: shape (2,), {alike}",
    ]


def test_ordinary_tensors_have_no_placements() -> None:
    scenario = one_parameter(2, "w", cap_bytes=64)
    *_, shown = scenario_lines(scenario, "local")
    assert shown == "  w: shape (3,), float32, ordinary tensor, group 0"
    entry = FoundViolation(VIOLATION, scenario, tensors="local")
    text = explanation_of(entry, subject="ddp", backend="sim").text()
    assert f"  {shown}" in text.splitlines()
    assert "\n  scenario: 2 ranks, mesh (dp=2)\n" in text  # nothing made it small
    assert "placements" not in text


OTHER_VALUES: dict[type, dict[str, object]] = {
    MeshSpec: {"shape": (4, 1), "axis_names": (), "order": "permuted"},
    ParameterSpec: {"name": "w", "global_shape": (7,), "placements": ("P", "S0"),
        "dtype": "float64", "grad_dtype": None, "requires_grad": False, "group": 1,
        "num_listed": 2, "also_in_next_group": True, "memory_format": "transposed",
        "used": "never", "use": "twice", "gradient": "inf", "on_mesh": "transposed"},
    Scenario: {"accumulations": (3, 1), "bucket_cap_bytes": 8,
        "events": ("wait_twice", "plain"), "launch": "step_on_side_stream",
        "readiness": "by_rank", "backward": "anomaly", "module": "mlp", "synchronizers": "two",
        "evaluation": "before_steps", "replicas": "unequal", "update": "in_backward"},
}  # fmt: skip


def test_each_field_of_a_scenario_is_reported() -> None:
    first = replace(SCENARIO.parameters[0], global_shape=(5, 2))
    trained = (ParameterSpec("p1", (), None),)
    both = replace(SCENARIO, parameters=(first, *trained))
    plain = [*scenario_lines(both)]
    for spec in (both.mesh, first, both):
        values = OTHER_VALUES[type(spec)]
        names = {each.name for each in fields(spec)}
        assert names - {*values} <= {"mesh", "parameters", "version"}
        for name, value in values.items():
            other: object = replace(spec, **{name: value})
            if isinstance(other, MeshSpec):
                other = replace(both, mesh=other)
            elif isinstance(other, ParameterSpec):
                other = replace(both, parameters=(other, *trained))
            assert isinstance(other, Scenario)
            assert [*scenario_lines(other)] != plain, name


_USE = Access(Moment("wait", 0), "side", "aten.add_", (), (), SourceLine("a.py", 1, ""))
RACE = Race(1, 0, 1, _USE, replace(_USE, stream="default"), MemoryRegion(0, 0, 4))


def test_a_witness_shows_what_another_order_gives() -> None:
    witness = Witness(RACE, True, "it is wrong", [7.0], [math.nan])
    entry = FoundViolation(VIOLATION, SCENARIO, witness=witness)
    assert """
  witness:    when second runs before first on rank 1:
              it is wrong
              expected: [7]
              observed: [nan]
              nan: memory that is not written yet or has another owner, and values computed from it
  seen on:    ranks 0, 2; parameter p0
""" in explanation_of(entry, subject="a", backend="sim").text()
    written = json.dumps(violation_json(entry), allow_nan=False)
    assert json.loads(written)["witness"] == {
        "order": "second runs before first on rank 1",
        "outcome": "it is wrong",
        "expected": [7.0],
        "observed": ["nan"],
    }


@pytest.mark.parametrize(
    ("witness", "line"),
    [
        (
            NoWitness(3),
            (
                "the missing order is the violation; no wrong gradient was shown: 3 legal orders "
                "of this scenario were played"
            ),
        ),
        (
            NoWitness(1, is_elsewhere=True),
            (
                "other scenarios have a wrong gradient (see `then`); 1 legal order of this "
                "scenario was played, without one"
            ),
        ),
    ],
)
def test_a_missing_order_without_a_witness(witness: NoWitness, line: str) -> None:
    entry = FoundViolation(VIOLATION, SCENARIO, witness=witness)
    text = explanation_of(entry, subject="a", backend="sim").text()
    assert f"\n  witness:    {line}\n  seen on: " in text
    data = violation_json(entry)["witness"]
    assert data == {"orders_played": witness.num_orders, "reasons": []}


RELATED = replace(
    ENTRY,
    related=(
        RelatedViolation("replicas_agree", "replicas_differ", "they differ", True),
        RelatedViolation("unreduced_stay_local", "stale", "it is stale", False),
    ),
)


def test_violations_that_one_explains_take_a_line_each() -> None:
    assert (
        "\n  then: replicas_agree (replicas_differ): they differ"
        "\n  also shows as: unreduced_stay_local (stale): it is stale\n"
    ) in explanation_of(RELATED, subject="s", backend="sim").text()
    data = violation_json(RELATED)
    (then,), (other,) = data["consequences"], data["other_forms"]
    assert [*then.values()] == ["replicas_agree", "replicas_differ", "they differ"]
    assert [*other.values()] == ["unreduced_stay_local", "stale", "it is stale"]


def test_a_violation_fits_sixty_lines_and_keeps_what_matters() -> None:
    """However many collectives, parameters and consequences there are."""
    collectives = tuple(Event(f"collective {n}") for n in range(40))
    evidence = replace(VIOLATION.evidence, events=collectives)
    entry = FoundViolation(
        replace(VIOLATION, evidence=evidence),
        replace(
            SCENARIO,
            parameters=tuple(
                ParameterSpec(f"p{n}", (2 + n % 2,), ("R", "R")) for n in range(30)
            ),
        ),
        related=RELATED.related * 20,
    )
    lines = explanation_of(entry, subject="s", backend="sim").text().splitlines()
    assert len(lines) <= 60
    for title in ("expected:", "observed:", "seen on:", "hint:", "replay:"):
        assert any(line.strip().startswith(title) for line in lines)
    assert sum("... and " in line for line in lines) >= 4


def test_nothing_judged_is_said_only_where_nothing_is_known() -> None:
    saved = replace(REPORT, examples=0)
    assert saved.gap(None) is None
    assert replace(saved, violations=()).gap(None) == (
        "no scenario was judged, so nothing is known; raise the time limit"
    )
