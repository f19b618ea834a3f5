from pathlib import Path

from comparison.outcomes import Outcome, store, stored
from comparison.verdicts import SILENT, alarm

OUTCOME = Outcome(
    "a", "numerics", True, {"allclose": alarm("differs")}, {"allclose": SILENT}
)


def test_what_is_stored_is_read_back(tmp_path: Path) -> None:
    store(tmp_path / "kept.json", [OUTCOME])
    assert stored(tmp_path / "kept.json") == {"a": OUTCOME}


def test_no_file_holds_nothing(tmp_path: Path) -> None:
    assert stored(None) == stored(tmp_path / "none.json") == {}


def test_an_alarm_is_one_line_of_bounded_length() -> None:
    assert alarm("a\nb").words == "a b"
    assert len(alarm("word " * 100).words) == 100
