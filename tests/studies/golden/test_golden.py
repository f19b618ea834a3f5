"""Golden transcripts: stored, compared and shown; they tell facts from words."""

from pathlib import Path

import pytest
import torch

from studies.golden import programs
from studies.golden.__main__ import main
from studies.golden.plain import plain
from syncverify.command.process_exit import run_command
from syncverify.judge.properties.registry import Verdict
from syncverify.trace.records import DEFAULT_STREAM, Moment, StreamCreated
from syncverify.trace.run import Fault, Leftovers
from syncverify.trace.source_lines import NoLine, SourceLine

NAME = "bank/avg-divides-by-numel"
FOUND = "gradient_equals_reference (scaled)"
TWICE = f"play 0 {FOUND} and play 3 {FOUND}"


def code_of(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Run the command line, and return its exit code."""
    monkeypatch.setattr("sys.argv", ["golden", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        run_command(main, "golden")
    return int(ended.value.code or 0)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of two rows, as the code is."""
    path = tmp_path / "before.jsonl"
    assert code_of(monkeypatch, "store", path, "--only", NAME, "--only", "vers") == 0
    return path


@pytest.mark.slow
def test_the_same_code_stores_and_shows_the_same(
    stored: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = tmp_path / "again.jsonl"
    assert code_of(monkeypatch, "store", again, "--only", NAME, "--only", "vers") == 0
    assert code_of(monkeypatch, "compare", stored, again) == 0
    assert "compared 2 rows: 1 bank, 1 versions\nEQUAL" in capsys.readouterr().out
    assert code_of(monkeypatch, "show", stored, NAME) == 0
    shown = capsys.readouterr()
    assert "\ntrace: play 0 rank 1 CollectiveLaunch(" in shown.out
    assert shown.out.endswith(f"\nfound: play 3 {FOUND}\n")
    assert shown.err == f"other than in {stored}: nothing\n"


@pytest.mark.slow
def test_a_property_that_finds_nothing_is_seen(
    stored: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    after = tmp_path / "after.jsonl"
    monkeypatch.setattr(programs, "judge_run", lambda *_: Verdict([], ()))
    assert code_of(monkeypatch, "store", after, "--only", NAME) == 0
    assert code_of(monkeypatch, "compare", stored, after) == 1
    assert capsys.readouterr().out.splitlines()[-5:] == [
        f"{NAME}: verdicts differs, and so does found; found nothing in the place of {TWICE}",
        "versions/python and torch: only in the first file",
        "compared 1 rows: 1 bank",
        f"only in {stored}: 1 rows: 1 versions",
        "2 rows are not equal in both",
    ]


@pytest.mark.parametrize(
    "text", [None, "", "no JSON\n", '{"name": "a/b"}\n' * 2, '{"trace": "1"}\n']
)
def test_a_file_without_rows_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"name": "a/b"}\n')
    if text is not None:
        bad.write_text(text)
    assert code_of(monkeypatch, "compare", good, bad) == 2
    assert code_of(monkeypatch, "compare", bad, good) == 2
    assert code_of(monkeypatch, "show", bad, "a/b") == 2
    assert code_of(monkeypatch, "store", good, "--only", "a/") == 2


def test_words_and_line_numbers_are_left_out_and_facts_are_not() -> None:
    line = SourceLine("/one/place.py", 7, "reduce")
    created = StreamCreated(Moment("bind", 0), DEFAULT_STREAM, line)
    shown = (
        "StreamCreated(moment=Moment(phase='bind', step=0), stream='default', source="
    )
    assert plain(created) == f"{shown}in reduce)"
    assert plain(NoLine.AUTOGRAD) == "AUTOGRAD"
    fault = Fault("raised", (0, 1), "a sentence", ("another",), error="a third")
    assert plain(fault) == "Fault(kind='raised', ranks=[0, 1])"
    left = Leftovers({"p1": 2, "p0": 0}, (), (), settings=("in words",))
    assert plain(left) == (
        "Leftovers(hooks={p0: 0, p1: 2}, shared_gradients=[], changed=[], settings=1)"
    )


def test_all_elements_of_a_long_tensor_count() -> None:
    long = torch.zeros(100)
    changed = long.clone()
    changed[-1] = 1
    assert plain(long) != plain(changed)
    assert plain(torch.tensor([1.5])) == "torch.float32[1] [1.5]"
