"""Our synchronizer with its options: right, by the code that they choose."""

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from syncverify.trace.records import CollectiveWait

PLAYED = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (3,), ("R",)),), (2, 1), 64
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ("", {"collectives.py"}),
        (":comm_hook=all_reduce", {"comm_hook_transport.py"}),
        (
            ":comm_hook=all_reduce,unused=keep_none",
            {"comm_hook_transport.py"},
        ),
        (":unused=keep_none", {"collectives.py"}),
    ],
)
def test_options_choose_the_code_that_reduces(options: str, waits: set[str]) -> None:
    subject = resolve(f"synchronizer{options}")
    run = SimBackend().run(PLAYED, subject)
    assert check(PLAYED, run, subject.capabilities) == []
    records = run.ranks[0].trace
    lines = {str(each.source) for each in records if isinstance(each, CollectiveWait)}
    assert {line.rpartition("/")[2].partition(":")[0] for line in lines} == waits
