"""A token is short, and is read back or refused in one line."""

import base64
import contextlib
import json
import string
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.replay_token import (
    ProgramPlay,
    Reproducer,
    decode,
    encode,
    load,
    load_program,
)
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.strategies import scenarios, schedules
from tests.programs import one_parameter

SMALLEST = one_parameter(2, "p0", ())
REPRODUCER = Reproducer(
    "gradient_equals_reference", "rank_contribution_missing", SMALLEST
)
TOKEN = encode(REPRODUCER)
ALPHABET = string.ascii_letters + string.digits + "-_"


def token_of(contents: object, *, text: bytes | None = None) -> str:
    squeezed = zlib.compress(json.dumps(contents).encode() if text is None else text)
    return "sv2-" + base64.urlsafe_b64encode(squeezed).decode().rstrip("=")


def packed(**changes: Any) -> list[Any]:
    """Return the contents of a token, with parts of the scenario replaced."""
    parts = {
        "shape": [2],
        "names": ["dp"],
        "parameters": [["p0", [], ["R"], 0, None, 1, 0]],
        "accumulations": [1],
        "cap": 64,
        **changes,
    }
    return ["some_property", "some_cause", list(parts.values()), []]


def of_shape(shape: list[int]) -> list[Any]:
    """Return the contents of a token with one parameter of a shape."""
    return packed(parameters=[["p", shape, ["R"], 0, None, 1, 0]])


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), max_size=200)


@pytest.mark.long
@given(scenarios(max_ranks=8), schedules(100), NAMES, NAMES)
def test_token_round_trip(
    scenario: Scenario, schedule: Schedule, name: str, cause: str
) -> None:
    reproducer = Reproducer(name, cause, scenario, schedule)
    token = encode(reproducer)
    assert set(token) <= set(ALPHABET)  # a shell leaves it alone
    assert decode(token) == reproducer
    assert decode(f"  {token}\n") == reproducer


def test_token_of_a_shrunk_scenario_is_short() -> None:
    assert len(TOKEN) <= 160  # it fits two lines of a terminal


def test_token_of_a_few_late_choices_is_short() -> None:
    late = Schedule((*[0] * 500, 1, 0, 0, 2))
    assert len(encode(replace(REPRODUCER, schedule=late))) <= len(TOKEN) + 40


def test_token_of_another_version_is_refused(tmp_path: Path) -> None:
    token = f"sv17-{TOKEN.removeprefix('sv2-')}"
    shown = token[:40] + "..."
    message = (
        f"token {shown!r} is of version 17, and this syncverify reads version 2: "
        "record the violation again, or replay it with the syncverify that wrote it"
    )
    assert refusal(token) == message
    for file in (written(tmp_path, token), written(tmp_path, report(token))):
        assert load_refusal(file) == message


def refusal(token: str) -> str:
    with pytest.raises(ScenarioFormatError) as caught:
        decode(token)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "SV2-abc", "no/such/file.json"])
def test_text_that_is_no_token_is_refused(text: str) -> None:
    assert refusal(text) == (
        f"not a token or file: {text!r} (tokens of this version start with 'sv2-')"
    )


BAD_TOKENS = {
    "empty": "sv2-",
    "not base64": "sv2-$$$$",
    "newline inside": TOKEN[:20] + "\n" + TOKEN[20:],
    "not compressed": "sv2-" + base64.urlsafe_b64encode(b"[1, 2, 3]").decode(),
    "nested deeply": token_of(None, text=b"[" * 100_000),
    "five entries": token_of([*packed(), 1]),
    "choice is true": token_of([*packed()[:3], [True]]),
    "property is a number": token_of([1, *packed()[1:]]),
    "scenario is text": token_of(["p", "c", "abcde", []]),
    "mesh of infinity": token_of(None, text=b'["p","c",[[Infinity],["dp"],[],[1],1],[]]'),
    "dtype out of range": token_of(packed(parameters=[["p", [], ["R"], 9, None, 1, 0]])),
    "placement is a list": token_of(packed(parameters=[["p", [], [["R"]], 0, None, 1, 0]])),
}  # fmt: skip


MUCH = 10**9
TOO_LARGE = {
    "expected at most 131072 ranks, got over 1000000000": packed(shape=[MUCH]),
    "expected at most 1024 parameters, got 1025": packed(
        parameters=[[f"p{n}", [], ["R"], 0, None, 1, 0] for n in range(1025)]),
    "expected at most 8 dims, got 70": of_shape([1] * 70),
    "expected at most 4194304 elements, got 268435456": of_shape([2**14, 0, 2**14]),
    "expected at most 1024 micro-batches, got over 1000000000": packed(accumulations=[MUCH]),
    "expected at most 1125899906842624 bytes of a bucket, got over 1000000000": packed(
        cap=10**400),
    "expected at most 131072 observed gradients, got 262144": packed(shape=[512],
        accumulations=[511]),
    "expected at most 134217728 elements of observed gradients, got 536870912": packed(
        shape=[512], parameters=[["p", [2**19], ["R"], 0, None, 1, 0]]),
    "names are printable text of at most 200 characters": packed(
        parameters=[["\x1b[31m", [], ["R"], 0, None, 1, 0]]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "content"), TOO_LARGE.items(), ids=range(len(TOO_LARGE))
)
def test_token_that_asks_for_too_much_is_refused(
    message: str, content: list[Any]
) -> None:
    assert refusal(token_of(content)) == f"malformed scenario: {message}"


@pytest.mark.parametrize("name", ["\ud800", "x" * 201])
def test_violation_of_a_name_that_no_terminal_shows_is_refused(name: str) -> None:
    content = packed()
    content[1] = name
    assert refusal(token_of(content)).startswith("malformed scenario: names are print")


def test_module_of_a_token_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    content = packed()
    content[2].append({"module": "foreign:MODEL"})
    assert refusal(token_of(content)).startswith("malformed scenario: module is one of")


@pytest.mark.parametrize("token", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
def test_bad_token_is_refused_in_one_line(token: str) -> None:
    message = refusal(token)
    assert "\n" not in message
    assert len(message) < 300  # however long the token is
    assert message.startswith(
        ("unreadable token 'sv2-", "malformed scenario: ", "malformed schedule: ")
    )


@given(st.integers(4, len(TOKEN) - 1), st.sampled_from(ALPHABET))
def test_mistyped_token_never_replays_another_scenario(place: int, typed: str) -> None:
    mistyped = TOKEN[:place] + typed + TOKEN[place + 1 :]
    with contextlib.suppress(ScenarioFormatError):  # if read, only padding bits differ
        assert decode(mistyped) == REPRODUCER


@given(st.integers(0, len(TOKEN) - 1))
def test_cut_token_is_refused(length: int) -> None:
    assert "\n" not in refusal(TOKEN[:length])


def written(folder: Path, content: str | bytes) -> str:
    file = folder / "recorded"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


def report(*tokens: str) -> str:
    return json.dumps({"version": 1, "violations": [{"token": t} for t in tokens]})


@pytest.mark.parametrize(
    "content",
    [TOKEN, f"\n{TOKEN}\n", report(TOKEN), json.dumps({"token": TOKEN})],
    ids=["token", "token and newlines", "report", "violation"],
)
def test_load_reads_a_file(tmp_path: Path, content: str) -> None:
    assert load(written(tmp_path, content)) == REPRODUCER


def test_load_reads_a_file_whose_path_has_a_hash_mark(tmp_path: Path) -> None:
    folder = tmp_path / "a#1"
    folder.mkdir()
    file = written(folder, report(TOKEN))
    assert load(file) == load(f"{file}#1") == REPRODUCER
    assert load_refusal(f"{file}#2") == f"{file!r} has no violation #2: it has 1"


def load_refusal(text: str) -> str:
    with pytest.raises(ScenarioFormatError) as caught:
        load(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("num_violations", "index", "message"),
    [
        (3, "", "has 3 violations: choose one with {file}#1 to {file}#3"),
        (3, "#4", "has no violation #4: it has 3"),
        (3, "#0", "has no violation #0: it has 3"),
        (3, "#²", "has no violation #²: it has 3"),
        (0, "", "has no violation to play"),
        (0, "#1", "has no violation to play"),
    ],
)
def test_load_refuses_a_violation_that_is_not_there(
    tmp_path: Path, num_violations: int, index: str, message: str
) -> None:
    file = written(tmp_path, report(*[TOKEN] * num_violations))
    refused = load_refusal(f"{file}{index}")
    assert refused == f"{file!r} {message.format(file=file)}"


@pytest.mark.parametrize(
    "content",
    [
        "", "7", "{}", "[" * 100_000, '{"violations": [1]}', b"\xff\xfe\x00",
    ],
    ids=lambda content: repr(content[:20]),
)  # fmt: skip
def test_load_refuses_another_file(tmp_path: Path, content: str | bytes) -> None:
    file = written(tmp_path, content)
    assert load_refusal(file) == f"{file!r} holds neither a token nor a report"


def test_load_refuses_a_file_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, TOKEN)

    def refuse(*_arguments: object, **_options: object) -> str:
        raise PermissionError(13, "Permission denied", file)

    monkeypatch.setattr(Path, "open", refuse)
    assert load_refusal(file) == f"cannot read {file!r}: Permission denied"


def test_load_refuses_a_file_that_is_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("syncverify.scenario.bounds.MAX_FILE_BYTES", 100)
    file = written(tmp_path, "x" * 101)
    assert (
        load_refusal(file) == f"cannot read {file!r}: it has more than 100 characters"
    )


RECORDED = ProgramPlay(
    "every_wait_completes",
    "deadlock",
    "record",
    ("--nproc", "2", "-m"),
    ("--seed", "\n"),
)
TRAINED = ProgramPlay(
    "gradient", "scaled", "parity", ("--layouts", "dp=2", "--seed", "-1")
)


@pytest.mark.parametrize("play", [RECORDED, TRAINED])
def test_a_program_survives_its_token(play: ProgramPlay) -> None:
    assert load_program(encode(play)) == play
    with pytest.raises(ScenarioFormatError, match="this one plays a program"):
        decode(encode(play))


@pytest.mark.parametrize(
    ("face", "options", "words"),
    [
        ("simulate", ("--html", "/etc/passwd"), r"it has \['--html'\]"),
        ("parity", ("--json=out.json",), r"it has \['--json=out.json'\]"),
        ("run", (), "no command 'run' plays a program"),
        ("record", (2,), "names are printable text"),
        ("record", None, "must be an iterable"),
    ],
)
def test_a_token_of_a_program_names_no_file_and_no_other_command(
    face: Any, options: Any, words: str
) -> None:
    with pytest.raises(ScenarioFormatError, match=words):
        load_program(token_of(["a", "b", {face: [options, []]}]))
