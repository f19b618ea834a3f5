"""Groups that members alone make are named with their ranks."""

from syncverify.backends.sim import SimBackend
from syncverify.subjects.subject import resolve
from tests.quality.planted.groups import GRID, MakesGroupsWhereNeeded


def test_groups_that_members_alone_make_are_named() -> None:
    run = SimBackend().run(GRID, resolve(MakesGroupsWhereNeeded))
    assert run.fault is not None
    details = "\n".join(map(str, run.fault.details))
    assert "has the ranks [0, 2], used at" in details
    assert "has the ranks [1, 3], used at" in details
