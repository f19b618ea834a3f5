"""Outcomes of methods: stored, read back, and those of defects that were not played."""

from pathlib import Path

from studies.comparison.methods.all_methods import METHODS
from studies.comparison.outcomes import Outcome, not_played, store, stored
from studies.comparison.verdicts import SILENT, alarm
from syncverify.bugbank.catalogue import entry_of

OUTCOME = Outcome(
    "a", "numerics", True, {"allclose": alarm("differs")}, {"allclose": SILENT}
)


def test_what_is_stored_is_read_back(tmp_path: Path) -> None:
    store(tmp_path / "kept.json", [OUTCOME])
    assert stored(tmp_path / "kept.json") == {"a": OUTCOME}


def test_a_defect_that_the_search_misses_is_missed_by_all() -> None:
    missed = not_played(entry_of("avg-divides-by-numel"))
    assert set(missed.defect) == {method.id for method in METHODS}
    assert not any(verdict.alarmed for verdict in missed.defect.values())


def test_without_a_file_there_is_no_outcome(tmp_path: Path) -> None:
    assert stored(None) == stored(tmp_path / "none.json") == {}


def test_an_alarm_is_one_line_of_bounded_length() -> None:
    assert alarm("a\nb").words == "a b"
    assert len(alarm("word " * 100).words) == 100
