import json
from pathlib import Path

from comparison.smallest import KEPT, SmallestScenarios
from syncverify.bugbank.catalogue import entries, entry_of
from syncverify.replay import encode

TOKENS = json.loads(KEPT.read_text("utf-8"))
ENTRY = "avg-divides-by-numel"


def test_what_is_kept_is_of_the_bank() -> None:
    assert set(TOKENS) <= {entry.id for entry in entries()}


def test_what_is_kept_is_taken(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({ENTRY: TOKENS[ENTRY]}), encoding="utf-8")
    before = kept.stat().st_mtime_ns
    found = SmallestScenarios(kept).case(entry_of(ENTRY))
    assert found is not None
    assert found.defect.name == ENTRY
    assert kept.stat().st_mtime_ns == before


def test_what_shows_the_defect_no_longer_is_searched_for_anew(tmp_path: Path) -> None:
    kept, stale = tmp_path / "kept.json", TOKENS["missing-record-stream"]
    kept.write_text(json.dumps({ENTRY: stale}), encoding="utf-8")
    entry = entry_of(ENTRY)
    found = SmallestScenarios(kept).case(entry)
    assert found is not None
    assert found.recording.property == entry.property
    token = json.loads(kept.read_text("utf-8"))[ENTRY]
    assert token == encode(found.recording)
    assert token != stale
