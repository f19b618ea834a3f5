"""Evidence in reports: its keys in JSON, and its events with their titles."""

from typing import Any

import pytest

from syncverify.judge.evidence import (
    DifferentReplicas,
    Disagreement,
    Disordered,
    Ended,
    Event,
    Evidence,
    Mistimed,
    PlayedAgain,
    ReducedTwice,
    StreamChanged,
    TooFewElements,
    WrongGradient,
)
from syncverify.judge.ordering.races import Race
from syncverify.report.evidence import evidence_json, titled_events
from syncverify.trace.records import Access, CollectiveLaunch, Moment
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import CodeLine, SourceLine

HERE = SourceLine(__file__, 1, "f")
NOW = Moment("wait", 0)
USE = Access(NOW, "side", "aten.add_", (), (), HERE)
LAUNCH = CollectiveLaunch(
    NOW, (0, 1), 0, "all_reduce", "SUM", "float32", 4, (), (), HERE
)
RACE = Race(0, 1, 2, USE, USE, MemoryRegion(0, 0, 4))
FIRST, SECOND = Event("one", USE), Event("two")

CASES = [
    (Evidence(rank=1, step=2), {"rank": 1, "step": 2}),
    (
        WrongGradient(
            rank=0,
            step=1,
            parameter="p",
            local_shape=(2,),
            contributing_ranks=(0, 1),
            reduction="sum",
            expected=[1.0, float("inf")],
            observed=None,
            explanation="it is gone",
            events=(SECOND,),
            is_proven=False,
            readings=("it is late",),
        ),
        {
            "rank": 0,
            "step": 1,
            "micro_batch": None,
            "parameter": "p",
            "local_shape": [2],
            "contributing_ranks": [0, 1],
            "reduction": "sum",
            "expected": [1.0, float("inf")],
            "observed": None,
            "explanation": "it is gone",
            "collectives": ["two"],
            "is_proven": False,
            "is_certain": True,
            "readings": ["it is late"],
        },
    ),
    (
        DifferentReplicas(step=0, gradients={0: [1.0], 2: None}),
        {"step": 0, "rank 0": [1.0], "rank 2": None},
    ),
    (
        Mistimed(rank=0, events=(Event("", LAUNCH),)),
        {
            "rank": 0,
            "collective": str(LAUNCH),
            "moment": "step 0, wait",
            "is_proven": True,
        },
    ),
    (ReducedTwice(events=(SECOND, SECOND)), {"first": "two", "second": "two"}),
    (
        TooFewElements(owed_numel=8, exchanged_numel=4),
        {"owed_numel": 8, "exchanged_numel": 4, "collectives": []},
    ),
    (
        Disordered(
            events=(SECOND, SECOND),
            memory="bytes",
            remedy=None,
            streams=("side",),
            waits=(),
            unordered=RACE,
        ),
        {
            "first": "two",
            "second": "two",
            "memory": "bytes",
            "streams": ["side"],
            "waits": [],
        },
    ),
    (Disagreement(events=(SECOND,)), {"details": ["two"], "is_proven": True}),
    (
        Ended(kind="raised", details=("rank 0", CodeLine(HERE, "g()")), groups="mesh"),
        {
            "kind": "raised",
            "details": ["rank 0", f"{HERE}: g()"],
            "groups": "mesh",
        },
    ),
    (
        StreamChanged(moment=NOW, stream="side"),
        {"moment": "step 0, wait", "stream": "side"},
    ),
    (
        PlayedAgain(first="a", again="b"),
        {"first": "a", "again": "b", "details": ["first: a", "again: b"]},
    ),
]


@pytest.mark.parametrize(
    ("evidence", "values"), CASES, ids=[type(each).__name__ for each, _ in CASES]
)
def test_each_family_keeps_its_keys(evidence: Evidence, values: dict[str, Any]) -> None:
    found = evidence_json("c", evidence)
    code = found.pop("code", {})
    assert found == {"cause": "c", **values}
    assert [*code] == [each.words for each in evidence.events if each.use]


def test_code_stands_behind_an_event() -> None:
    evidence = Disagreement(events=(FIRST, SECOND))
    data = evidence_json("c", evidence)
    assert data["code"] == {"one": [f'{HERE}: """{__doc__}"""']}
    assert evidence.lines == (HERE,)


def test_events_of_an_order_have_titles() -> None:
    words = {"memory": "bytes", "remedy": "wait", "streams": (), "waits": ("a", "b")}
    evidence = Disordered(events=(FIRST, SECOND), unordered=RACE, **words)  # type: ignore[arg-type]
    titled = [
        (title, [e.words for e in each]) for title, each in titled_events(evidence)
    ]
    assert titled == [
        ("first:", ["one"]),
        ("second:", ["two"]),
        ("memory:", ["bytes"]),
        ("remedy:", ["wait"]),
        ("", []),
        ("waits:", ["a", "b"]),
    ]
