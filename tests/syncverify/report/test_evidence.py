"""Evidence in reports: its keys in JSON."""

import json

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
    TooFewElements,
    WrongGradient,
)
from syncverify.judge.ordering.races import Race
from syncverify.report.evidence import evidence_json
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
SECOND = Event("two")

# Evidence, and its keys in JSON after `cause` and `code`.
CASES: list[tuple[Evidence, str]] = [
    (Evidence(rank=1, step=2), "rank step"),
    (
        WrongGradient(
            rank=0, step=1, parameter="p", local_shape=(2,), contributing_ranks=(0, 1),
            reduction="sum", expected=[1.0], observed=None, explanation="it is gone",
            events=(SECOND,), is_proven=False, readings=("it is late",),
        ),
        ("rank step micro_batch parameter local_shape contributing_ranks reduction expected "
        "observed explanation collectives is_proven is_certain readings"),
    ),
    (
        DifferentReplicas(step=0, gradients={0: [1.0], 2: None}),
        "step rank_0 rank_2",
    ),
    (
        Mistimed(rank=0, events=(Event("", LAUNCH),)),
        "rank collective moment is_proven",
    ),
    (ReducedTwice(events=(SECOND, SECOND)), "first second"),
    (
        TooFewElements(owed_numel=8, exchanged_numel=4),
        "owed_numel exchanged_numel collectives",
    ),
    (
        Disordered(
            events=(SECOND, SECOND), memory="bytes", remedy=None, streams=("side",),
            waits=(), unordered=RACE,
        ),
        "first second memory streams waits",
    ),
    (Disagreement(events=(SECOND,)), "details is_proven"),
    (Ended(kind="raised", details=("rank 0",), groups="mesh"), "kind details groups"),
    (Evidence(facts={"moment": NOW, "held": (1, 2)}), "moment held"),
    (PlayedAgain(first="a", again="b"), "first again details"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("evidence", "keys"), CASES, ids=[type(each).__name__ for each, _ in CASES]
)
def test_each_family_keeps_its_keys(evidence: Evidence, keys: str) -> None:
    found = evidence_json("c", evidence)
    assert json.loads(json.dumps(found)) == found
    code = found.pop("code", {})
    assert {key.replace(" ", "_") for key in found} == {"cause", *keys.split()}
    assert [*code] == [each.words for each in evidence.events if each.use]


def test_code_and_facts_stand_in_words() -> None:
    evidence = Disagreement(events=(Event("one", USE), SECOND))
    assert evidence_json("c", evidence)["code"] == {"one": [f'{HERE}: """{__doc__}"""']}
    found = evidence_json("c", Mistimed(rank=0, events=(Event("", LAUNCH),)))
    assert (found["collective"], found["moment"]) == (str(LAUNCH), "step 0, wait")
    raised = Ended(kind="raised", details=("rank 0", CodeLine(HERE, "g()")))
    assert evidence_json("c", raised)["details"] == ["rank 0", f"{HERE}: g()"]
