"""The output, the report and the exit code of a run."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.scenario.replay_token import Reproducer, decode, encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from tests.programs import one_parameter

Call = Callable[..., Any]
SEARCH = ("--examples", "6", "--seed", "0", "--ranks", "2")


def last_line(out: str) -> str:
    return out.rstrip("\n").rpartition("\n")[2]


@pytest.mark.long
def test_right_subject_ends_with_code_0_and_its_verdict(call: Call) -> None:
    outcome = call("run", "synchronizer", *SEARCH)
    assert (outcome.code, outcome.err) == (0, "")
    first = outcome.out.partition("\n")[0]
    assert first == (
        "verifying synchronizer on sim: 6 scenarios, up to 2 ranks, seed 0"
    )
    assert re.fullmatch(
        r"NO VIOLATION: synchronizer held all properties of the plain contract and \d+ of "
        r"\d+ features beyond it \(6 scenarios on sim, seed 0, \d+\.\d s, up to \d+ steps\), but \d+ of \d+ "
        r"values were in no scenario: .*",
        last_line(outcome.out),
    )


@pytest.mark.long
def test_drawn_seed_is_printed_and_can_be_given(call: Call) -> None:
    few = ("run", "synchronizer", "--examples", "3", "--ranks", "2")
    first = call(*few, "--json", "first.json")
    (seed,) = re.findall(r"scenarios on sim, seed (\d+),", last_line(first.out))
    assert f"ranks, seed {seed}\n" in first.out
    call(*few, "--seed", seed, "--json", "again.json")
    reports = [
        json.loads(Path(name).read_text()) for name in ("first.json", "again.json")
    ]
    for report in reports:
        del report["seconds"], report["verdict"]  # which has the seconds too
    assert reports[0] == reports[1]


@pytest.mark.long
def test_time_limit_stops_early(call: Call) -> None:
    outcome = call("run", "synchronizer", *SEARCH, "--time-limit", "1e-9")
    assert last_line(outcome.out).startswith("NOTHING VERIFIED: synchronizer (0 scena")
    assert (outcome.code, outcome.complaint) == (
        4, "no scenario was judged, so nothing is known; raise the time limit",
    )  # fmt: skip


DOCUMENTED = Path(__file__).parents[4] / "docs/report.md"


def kinds(values: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in values.items()}


def strict(text: str) -> Any:
    """Parse JSON as other languages do, without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def played() -> dict[str, tuple[Any, str]]:
    """Return outputs and reports of the searches of this module, by subject."""
    return {}


@pytest.fixture
def search(call: Call, played: dict[str, tuple[Any, str]]) -> Call:
    """Search a subject, or remember its search; the report is in `report.json`."""

    def searched(subject: str) -> Any:
        if subject not in played:
            outcome = call("run", subject, *SEARCH, "--json", "report.json")
            played[subject] = outcome, Path("report.json").read_text()
        outcome, report = played[subject]
        Path("report.json").write_text(report)
        return outcome

    return searched


@pytest.fixture
def report(search: Call) -> dict[str, Any]:
    outcome = search("cli_subjects:Doubles")
    assert (outcome.code, outcome.err) == (1, "")
    return strict(Path("report.json").read_text())


@pytest.mark.long
def test_report_has_the_documented_shape(report: dict[str, Any]) -> None:
    shown = re.search(r"```json\n(.*?)```", DOCUMENTED.read_text(), re.DOTALL)[1]
    example = json.loads(shown)
    assert kinds(report) == {**kinds(example), "beyond": list}
    assert (report["subject"], report["backend"]) == ("cli_subjects:Doubles", "sim")
    assert (report["seed"], report["examples"]) == (0, 6)
    names = {entry.name for entry in ALL_PROPERTIES}
    assert report["coverage"].keys() >= {"ranks", "mesh", "parameters"}
    assert report["applied"].keys() == names
    assert report["applied"]["every_rank_finishes"] == 6
    untouched = report["untouched"]
    assert report["declared"]["pairs"] > len(untouched["pairs"]) > 0
    assert all(len(pair) == 2 for pair in untouched["pairs"])
    assert report["violations"]
    (of_example,) = example["violations"]
    for violation in report["violations"]:
        assert kinds(of_example).items() <= kinds(violation).items()
        assert violation["property"] in names
        reproducer = decode(violation["token"])
        assert reproducer.scenario == Scenario.from_json(violation["scenario"])
        assert reproducer.property == violation["property"]
        assert reproducer.cause == violation["evidence"]["cause"]


@pytest.mark.long
def test_printed_replay_lines_are_those_of_the_report(search: Call) -> None:
    outcome = search("cli_subjects:Doubles")
    tokens = [v["token"] for v in strict(Path("report.json").read_text())["violations"]]
    lines = [line for line in outcome.out.splitlines() if "replay:    " in line]
    assert lines == [
        f"  replay:     syncverify replay {token} cli_subjects:Doubles"
        for token in tokens
    ]
    assert last_line(outcome.out).startswith(
        f"{len(tokens)} VIOLATION{'S' if len(tokens) > 1 else ''}: cli_subjects:Doubles"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("report")
def test_replay_of_a_report_needs_no_subject(call: Call) -> None:
    outcome = call("replay", "report.json#1")
    assert outcome.code == 1
    assert last_line(outcome.out).startswith("REPRODUCED: cli_subjects:Doubles ")


@pytest.mark.slow
def test_replay_on_a_fixed_subject_says_so(call: Call, report: dict[str, Any]) -> None:
    violation = report["violations"][0]
    outcome = call("replay", violation["token"], "synchronizer")
    assert (outcome.code, outcome.err) == (0, "")
    assert last_line(outcome.out) == (
        f"NOT REPRODUCED: synchronizer holds {violation['property']} "
        f"({violation['evidence']['cause']}) on sim"
    )
    assert outcome.out.startswith("scenario: ")


@pytest.mark.long
def test_replay_says_where_a_schedule_is_not_followed(
    call: Call, report: dict[str, Any]
) -> None:
    reproducer = decode(report["violations"][0]["token"])
    token = encode(dataclasses.replace(reproducer, schedule=Schedule((0, 1, 0, 2))))
    note = "note: the token changes the default timing 2 times, "
    assert note not in call("replay", token, "cli_subjects:Doubles").out
    output = call("replay", token, "cli_subjects:Doubles", "--backend", "fake").out
    assert output.splitlines()[0] == (
        f"{note}and only --backend sim can follow it; on fake the machine decides"
    )


@pytest.mark.long
def test_replay_of_another_violation_says_so(call: Call, search: Call) -> None:
    search("cli_subjects:SkipsRankOne")
    (violation, *_) = strict(Path("report.json").read_text())["violations"]
    outcome = call("replay", violation["token"], "cli_subjects:Doubles")
    assert outcome.code == 1
    assert last_line(outcome.out) == (
        "NOT REPRODUCED: cli_subjects:Doubles violates something else than "
        f"{violation['property']} ({violation['evidence']['cause']}) on sim"
    )


@pytest.mark.long
def test_violations_are_kept_and_played_first_by_the_next_run(call: Call) -> None:
    kept = (*SEARCH, "--database", ".syncverify")
    first = call("run", "cli_subjects:Doubles", *kept)
    again = call("run", "cli_subjects:Doubles", *kept, "--examples", "1")
    matched = re.search(
        r"played first: (\d+) scenarios?, with (\d+) distinct", again.out
    )
    tokens = [
        re.findall(r"replay:     \S+ replay (sv2-\S+)", out)
        for out in (first.out, again.out)
    ]
    assert tokens[0] == tokens[1]
    assert (int(matched[1]), again.code) == (len(tokens[0]), 1)
    one = (*kept, "--examples", "1")
    other = call("run", "cli_subjects:Doubles", *one, "--no-database")
    assert "played first" not in other.out
    moved = call("run", "cli_subjects:Doubles", *one, "--database", "elsewhere")
    assert "played first" not in moved.out
    assert Path("elsewhere").is_dir()


@pytest.mark.slow
def test_a_violation_is_printed_the_moment_it_is_met(call: Call, search: Call) -> None:
    """Two lines: identity and summary, and a replay line that reproduces it."""
    outcome = search("cli_subjects:Doubles")
    lines = outcome.out.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("FOUND "))
    matched = re.match(r"FOUND (\w+ \(\w+\)): \S", lines[first])
    assert first < next(n for n, line in enumerate(lines) if "shrinking" in line)
    title, _, command = lines[first + 1].partition(": ")
    assert title == "  if this run is cut off"
    replayed = call(*command.split()[1:])
    assert replayed.code == 1
    assert (
        f"REPRODUCED: cli_subjects:Doubles violates {matched[1]} on sim" in replayed.out
    )


@pytest.mark.long
def test_the_first_violation_ends_the_run_where_that_is_asked_for(call: Call) -> None:
    outcome = call("run", "cli_subjects:Doubles", *SEARCH, "--stop-at-first")
    assert outcome.code == 1
    assert outcome.out.count("FOUND ") == 1
    assert last_line(outcome.out).startswith("1 VIOLATION: cli_subjects:Doubles (")
    played = int(re.findall(r"\((\d+) scenarios? on sim", last_line(outcome.out))[0])
    assert played < 6
    assert not Path(".syncverify").exists()


@pytest.mark.slow
def test_a_gap_in_coverage_fails_with_a_code_of_its_own(call: Call) -> None:
    few = ("--examples", "2", "--seed", "0", "--ranks", "2")
    outcome = call("run", "synchronizer", *few, "--require-coverage", "95")
    assert outcome.code == 4
    assert outcome.complaint.startswith(
        "expected every feature value and 95 % of the pairs, but "
    )
    assert "NO VIOLATION" in outcome.out


@pytest.mark.long
def test_a_violation_outweighs_a_gap(call: Call) -> None:
    outcome = call("run", "cli_subjects:Doubles", *SEARCH, "--require-coverage", "95")
    assert outcome.code == 1


CHANGES = '''
import torch.distributed as dist

from syncverify.synchronizer import GradientSynchronizer

num_made = 0


class Changes(GradientSynchronizer):
    """Has one more collective in each run of two ranks after the first."""

    def __init__(self, groups, bucket_size_mb, require_accumulations):
        global num_made
        super().__init__(groups, bucket_size_mb, require_accumulations)
        num_made += 1
        self.has_barrier = num_made > 2

    def wait(self):
        super().wait()
        if self.has_barrier:
            dist.barrier()
'''


@pytest.mark.slow
def test_replay_of_a_difference_between_two_runs_plays_two(call: Call) -> None:
    Path("changing.py").write_text(CHANGES)
    scenario = one_parameter(2, "p0", (4,))
    token = encode(Reproducer("subject_is_deterministic", "acts_otherwise", scenario))
    outcome = call("replay", token, "changing:Changes")
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.splitlines()[-1] == (
        "REPRODUCED: changing:Changes violates subject_is_deterministic "
        "(acts_otherwise) on sim"
    )
