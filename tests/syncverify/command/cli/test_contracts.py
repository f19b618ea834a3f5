"""`run --contract`, the table of features, `explain` and `probe`."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify import verify
from syncverify.command.verification.verify import PropertyViolation
from syncverify.judge.violation import Violation
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation

Call = Callable[..., Any]
NAIVE = '''
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate


class Naive:
    """Reduces in wait(); a second wait() reduces again."""

    def __init__(self, groups, bucket_size_mb, require_accumulations):
        self.mine = [p for group in groups for p in group]

    def bind(self): ...

    def wait(self):
        for parameter in self.mine:
            if isinstance(parameter, DTensor) and parameter.grad is not None:
                for axis, placement in enumerate(parameter.placements):
                    if isinstance(placement, Replicate):
                        group = parameter.device_mesh.get_group(axis)
                        dist.all_reduce(parameter.grad.to_local(), group=group)

    def zero_grad(self):
        for parameter in self.mine:
            parameter.grad = None

    def unbind(self):
        self.mine = []


class Doubles(Naive):
    def wait(self):
        super().wait()
        for parameter in self.mine:
            if parameter.grad is not None:
                parameter.grad.mul_(2)
'''
FEW = ("--seed", "0", "--ranks", "2")


OBSERVED = ["event=wait_twice", "event=rebind", "use=twice"]


@pytest.fixture
def naive(call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call the command where three features are all that is beyond the contract."""
    monkeypatch.setattr(
        "syncverify.command.verification.reported_search.features_beyond",
        lambda _: OBSERVED,
    )
    Path("naive_subjects.py").write_text(NAIVE)
    return call


@pytest.mark.long
def test_an_ordinary_synchronizer_is_not_condemned(naive: Call) -> None:
    run = ("run", "naive_subjects:Naive", *FEW, "--examples", "20")
    outcome = naive(*run, "--json", "report.json", beyond=True)
    assert (outcome.code, outcome.err) == (0, "")
    beyond, last = outcome.out.splitlines()[-2:]
    assert re.fullmatch(
        r"NO VIOLATION: naive_subjects:Naive held all properties of the plain contract "
        r"\(20 scenarios on sim, seed 0, \d+\.\d s, up to \d+ steps\)(, but .*)?",
        last,
    )
    assert beyond == (
        "not part of the verdict: 3 features that the contract does not promise: 1 right, 2 "
        "give a wrong gradient without an error (--tables lists them, --no-beyond skips them)"
    )
    report = json.loads(Path("report.json").read_text())
    words = {each["feature"]: each["word"] for each in report["beyond"]}
    assert words["event=wait_twice"] == "wrong"
    assert words["use=twice"] == "right"
    wrong = [f for f, word in words.items() if word == "wrong"]
    number = 1 + wrong.index("event=wait_twice")
    explanation = naive("explain", f"report.json#wrong/{number}")
    assert explanation.code == 0
    assert explanation.out.startswith(
        "event=wait_twice, beyond the contract\n\nVIOLATION: "
    )
    assert "naive_subjects.py:" in explanation.out
    token = report["beyond"][list(words).index("event=wait_twice")]["token"]
    again = naive("replay", token, "naive_subjects:Naive")
    assert again.code == 1
    assert "REPRODUCED" in again.out.splitlines()[-1]


@pytest.mark.long
def test_a_contract_fails_on_wrong_features(naive: Call) -> None:
    Path("strict.toml").write_text("fail_on_wrong = true\n")
    run = ("run", "naive_subjects:Naive", *FEW, "--examples", "1")
    outcome = naive(*run, "--contract", "strict.toml", beyond=True)
    assert outcome.code == 1
    assert (
        "\nWRONG 1 of 2: event=wait_twice, beyond the contract\nVIOLATION: "
        in outcome.out
    )
    assert outcome.out.splitlines()[-1].startswith("WRONG BEYOND THE CONTRACT: naive_")
    with pytest.raises(
        PropertyViolation, match="1 of 2: event=wait_twice, beyond"
    ) as caught:
        verify(
            "naive_subjects:Naive", contract="strict.toml", ranks=2, examples=1, seed=0
        )
    assert "  replay:     syncverify replay sv2-" in str(caught.value)


@pytest.mark.nightly
def test_a_probed_contract_is_kept(naive: Call) -> None:
    probe = ("probe", "naive_subjects:Naive", "--ranks", "2", "--scenarios", "2")
    outcome = naive(*probe, "--output", "found.toml")
    assert (outcome.code, outcome.err) == (0, "")
    assert "contract written to found.toml" in outcome.out
    assert (
        "\nconfirming: features that were right or refused, all together\n"
        in outcome.out
    )
    found: dict[str, Any] = tomllib.loads(Path("found.toml").read_text())
    assert "use=twice" in found["right"]
    assert "# wrong: event=wait_twice" in Path("found.toml").read_text()
    run = ("run", "naive_subjects:Naive", *FEW, "--examples", "10", "--contract")
    kept = naive(*run, "found.toml")
    assert kept.code == 0


@pytest.mark.nightly
def test_a_correction_of_a_probe_is_reported(
    naive: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameter = ParameterSpec("p0", (4,), ("R",), use="twice")
    scenario = Scenario(
        MeshSpec((2,), ("dp",)), (parameter,), (1,), 1, backward="split"
    )
    violation = Violation(
        "gradient_equals_reference", "gradient_missing", "it is wrong", (), (), {}
    )
    met = iter([FoundViolation(violation, scenario), None])
    name = "syncverify.command.probe._Probe._violation_of_found"
    monkeypatch.setattr(name, lambda *_: next(met))
    probe = ("probe", "naive_subjects:Naive", "--ranks", "2", "--scenarios", "2")
    outcome = naive(*probe)
    assert outcome.err == ""
    assert re.findall("^corrected: (.*)$", outcome.out, re.MULTILINE) == [
        "use=twice is wrong, not right: it is wrong (together with backward=split)"
    ]


@pytest.mark.nightly
def test_no_contract_is_written_for_a_subject_that_violates_plain_steps(
    naive: Call,
) -> None:
    probe = ("probe", "naive_subjects:Doubles", "--ranks", "2", "--scenarios", "1")
    outcome = naive(*probe, "--output", "found.toml")
    assert outcome.code == 1
    assert not Path("found.toml").exists()


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("report.json", "expected REPORT.json#RATING/N"),
        ("report.json#wrong/x", "expected REPORT.json#RATING/N"),
        ("report.json#wrong/2", "lists 1 feature as 'wrong'"),
        ("report.json#right/1", "there is nothing to explain"),
        ("none.json#wrong/1", "cannot be read"),
        ("other.json#wrong/1", "is no report"),
    ],
)
def test_a_place_that_leads_nowhere_is_named(
    call: Call, place: str, complaint: str
) -> None:
    beyond = [
        {"feature": "event=tail", "word": "wrong", "diagnosis": "VIOLATION: ..."},
        {"feature": "use=twice", "word": "right"},
    ]
    Path("report.json").write_text(json.dumps({"beyond": beyond}))
    Path("other.json").write_text("[]")
    outcome = call("explain", place)
    assert outcome.code == 2
    assert complaint in outcome.complaint


def test_an_unknown_contract_is_named(call: Call) -> None:
    outcome = call("probe", "synchronizer", "--contract", "plane")
    assert outcome.code == 2
    assert outcome.complaint.startswith("unknown contract 'plane': expected one of ")
