"""The comparison of `sim` and `streams` sees a difference, and is stored as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from studies.streams import page, playing
from studies.streams.page import read
from studies.streams.playing import (
    NUM_DEFECTS,
    NUM_SCENARIOS,
    RIGHT,
    compared,
    defects,
    drawn,
)
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entries, entry_of

DEFECT = "async-result-read-before-wait"


class PlaysTheTwin(SimBackend):
    """Plays the defect without its mistake, so that its verdict is another one."""

    @override
    def run(self, scenario: Any, subject: Any, *more: Any) -> Any:
        return super().run(scenario, entry_of(DEFECT).fixed(), *more)


def test_another_verdict_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = entry_of(DEFECT).defect()
    monkeypatch.setattr(playing, "StreamsBackend", PlaysTheTwin)
    found = compared(subject, drawn(subject, 2))
    assert found.num_scenarios == 2
    assert len(found.different) == found.num_wrong > 0


def test_a_displaced_defect_stays_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = defects()
    monkeypatch.setattr(page, "defects", lambda: tuple(others))
    assert f"| `{first}` |" in page.page()


def test_all_subjects_are_stored_and_agree() -> None:
    stored = read()
    assert {*RIGHT} <= stored.keys() <= {*RIGHT, *(entry.name for entry in entries())}
    assert len(stored) >= len(RIGHT) + NUM_DEFECTS
    for name, row in stored.items():
        assert (row.num_scenarios, row.different) == (NUM_SCENARIOS, []), name
        assert bool(row.num_wrong) == (name not in RIGHT), name
