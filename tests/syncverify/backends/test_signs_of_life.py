"""The signs of life of a rank tell what its descendants do while it waits for them."""

import pytest

from syncverify.backends.signs_of_life import Helpers
from syncverify.processes.process_state import LocalProcess, Work


def test_descendants_are_looked_at_only_while_the_rank_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = Work(3.0, is_ready=True)
    works = iter([busy, Work(4.0)])
    monkeypatch.setattr(LocalProcess, "work_of_descendants", lambda _: next(works))
    helpers = Helpers()
    seen = [helpers.look(seconds) for seconds in (5.0, 5.01, 9.0, 9.02)]
    assert seen == [Work(), busy, busy, Work(4.0)]
