"""Restored globals are the objects that they were, with the items that they had."""

from types import ModuleType

from syncverify.adapters.recorded_globals import RecordedGlobals


def framework() -> ModuleType:
    module = ModuleType("framework")
    module.group, module.ranks, module.by_name, module.names = None, [0], {}, {"dp"}
    return module


def test_attributes_are_set_back_and_later_ones_deleted() -> None:
    module = framework()
    recorded = RecordedGlobals(module)
    module.group, module.rank = "a group", 3
    recorded.restore()
    assert module.group is None
    assert not hasattr(module, "rank")


def test_containers_are_filled_in_place() -> None:
    """Other modules imported the containers by name."""
    module = framework()
    ranks, by_name, names = module.ranks, module.by_name, module.names
    recorded = RecordedGlobals(module)
    ranks.append(1)
    by_name["dp"] = "a group"
    names.clear()
    module.ranks = [9]
    recorded.restore()
    assert (ranks, by_name, names) == ([0], {}, {"dp"})
    assert module.ranks is ranks


def test_modules_that_were_imported_meanwhile_stay() -> None:
    module = framework()
    recorded = RecordedGlobals(module)
    module.late = ModuleType("framework.late")
    recorded.restore()
    assert module.late.__name__ == "framework.late"


def test_state_may_be_attributes_of_a_class() -> None:
    class State:
        group: str | None = None

    recorded = RecordedGlobals(State)
    State.group = "a group"
    recorded.restore()
    assert State.group is None
