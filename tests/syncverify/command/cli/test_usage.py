"""Exit code 2, and one line on stderr that names the mistake."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import BUILT_IN_SUBJECTS

Call = Callable[..., Any]
SHARDED = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (3,), ("S0",)),), (1,), 64
)
WIDE = MeshSpec((4096,), ("dp",))
NAMES = ", ".join(sorted(BUILT_IN_SUBJECTS))
BUILT_IN = f"expected one of {NAMES}, module:attribute or file.py:attribute"
REFUSED = {
    "unknown subject": (("run", "nothing"), f"unknown subject 'nothing': {BUILT_IN}"),
    "factory of nothing": (("run", "cli_subjects:makes_nothing", "--examples", "1"),
        ("subject 'cli_subjects:makes_nothing' lacks bind(), wait(), zero_grad(), "
        "unbind(): a subject has bind(), wait(), zero_grad(), unbind()")),
    "many ranks": (("run", "synchronizer", "--ranks", "1000000000"),
        "expected ranks <= 512 on sim, got 1000000000"),
    "many ranks of a probe": (
        ("probe", "synchronizer", "--ranks", "1000000000", "--backend", "gloo"),
        "expected ranks <= 64 on gloo, got 1000000000"),
    "many ranks of a token": (
        ("replay", encode(Reproducer("p", "c", replace(SHARDED, mesh=WIDE))), "ddp"),
        "expected ranks <= 512 on sim, got 4096"),
    "not a time": (("run", "synchronizer", "--time-limit", "nan"),
        "Invalid value for '--time-limit': nan is not a finite number."),
    **{
        f"{seconds} as a patience": (
            ("simulate", "missing.py:f", "--hang-timeout", seconds),
            f"Invalid value for '--hang-timeout': {words}",
        )
        for seconds, words in {
            "nan": "nan is not a finite number.",
            "inf": "inf is not in the range 0<x<=604800.",
            "1e20": "1e+20 is not in the range 0<x<=604800.",
        }.items()
    },
    "not a time of a training": (("parity", "missing.py", "--time-limit", "nan"),
        "Invalid value for '--time-limit': nan is not a finite number."),
    "a typo in the class": (("run", "cli_subjects:LacksWiat"),
        ("subject 'cli_subjects:LacksWiat' cannot be imported: AttributeError: module "
        "'cli_subjects' has no attribute 'LacksWiat'; did you mean 'LacksWait'?")),
    "fake with ddp": (("run", "ddp", "--backend", "fake"),
        ("subject 'ddp' does not run on the fake backend: it needs the results of "
        "collectives")),
    "folder of the report": (("run", "synchronizer", "--json", "missing/report.json"),
        "cannot write 'missing/report.json': its folder does not exist"),
    "no subject to replay": (("replay", encode(Reproducer("p", "c", SHARDED))),
        (f"expected a subject: {encode(Reproducer('p', 'c', SHARDED))[:40]!r} names none, "
        "as a report of `syncverify run --json` does; hint: syncverify replay TOKEN SUBJECT")),
    "no token": (("replay", "hello", "ddp"),
        "not a token or file: 'hello' (tokens of this version start with 'sv2-')"),
    "unknown schedules": (("run", "synchronizer", "--schedules", "some"),
        ("unknown schedules 'some': expected default, drawn, all, all:N, pct or pct:N "
        "(at most N runs a scenario, N >= 1)")),
    "schedules of real processes": (
        ("run", "synchronizer", "--schedules", "all", "--backend", "gloo"),
        "schedules 'all' need the sim backend: on gloo, the machine's own timing decides"),
    "ranks beside a scope": (("run", "synchronizer", "--exhaustive", "--ranks", "2"),
        "an exhaustive search takes its ranks from --scope ranks=N"),
    "unknown bound of a scope": (("run", "synchronizer", "--exhaustive", "--scope", "rank=2"),
        ("unknown bound 'rank' of a scope: expected ranks, parameters, buckets, "
        "micro_batches, steps, words")),
    "scenario that the subject does not promise": (
        ("replay", encode(Reproducer("p", "c", SHARDED)), "ddp"),
        ("subject 'ddp' does not promise to handle parameters=uneven or empty shard, "
        "parameters=sharded: its capabilities leave that out; replay with a subject that "
        "covers it")),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_usage_is_refused_in_one_line(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    outcome = call(*arguments)
    assert outcome.code == 2
    # What a function returns is known when it is called.
    assert outcome.out == "" or "makes_nothing" in arguments[1]
    assert outcome.complaint == message


@pytest.mark.long
def test_report_that_cannot_be_written_does_not_hide_the_verdict(call: Call) -> None:
    outcome = call(
        "run", "synchronizer", "--examples", "1", "--seed", "0", "--json", "/dev/full"
    )
    assert outcome.code == 2
    assert outcome.complaint == "cannot write '/dev/full': No space left on device"
    assert "NO VIOLATION: synchronizer held all properties" in outcome.out


def test_bare_command_prints_its_help_in_lines(call: Call) -> None:
    outcome = call()
    assert (outcome.code, outcome.out) == (2, "")
    assert "Verify gradient synchronizers" in outcome.err
    assert "\n  run       Search for violations of a synchronizer.\n" in outcome.err
    assert "\n  Examples:\n    syncverify run ddp\n" in outcome.err


def test_unknown_focus_names_the_nearest(call: Call) -> None:
    outcome = call("run", "cli_subjects:Right", "--focus", "bucketcap", "--no-database")
    assert outcome.code == 2
    assert outcome.complaint.startswith(
        "unknown focus 'bucketcap': did you mean 'bucket_cap'?"
    )
