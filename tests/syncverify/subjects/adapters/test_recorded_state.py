"""What a synchronizer attached or set is gone after a restore; changes of values stay."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import nn

from syncverify.subjects.adapters.recorded import RecordedGlobals, RecordedParameter

Attach = Callable[[nn.Parameter, Callable[..., None]], object]


def accumulation_node(parameter: nn.Parameter) -> torch.autograd.graph.Node:
    # torch has no getter. The node comes next to that of any operator on the parameter.
    return parameter.expand_as(parameter).grad_fn.next_functions[0][0]


def hook_of_node(parameter: nn.Parameter, hook: Callable[..., None]) -> object:
    node = accumulation_node(parameter)
    node.register_hook(hook)
    return node  # it lives as long as a reference to it


def prehook_of_node(parameter: nn.Parameter, hook: Callable[..., None]) -> object:
    node = accumulation_node(parameter)
    node.register_prehook(hook)
    return node  # it lives as long as a reference to it


ATTACH: dict[str, Attach] = {
    "tensor hook": lambda p, hook: p.register_hook(hook),
    "post-accumulate hook": lambda p, hook: p.register_post_accumulate_grad_hook(hook),
    "hook of the node": hook_of_node,
    "prehook of the node": prehook_of_node,
    "hook of several": lambda p, hook: torch.autograd.graph.register_multi_grad_hook(
        [p], hook
    ),
}


@pytest.mark.parametrize("attach", ATTACH.values(), ids=ATTACH.keys())
def test_only_later_hooks_are_removed(attach: Attach) -> None:
    calls: list[str] = []
    parameter = nn.Parameter(torch.ones(3))
    earlier = attach(parameter, lambda *_: calls.append("earlier"))
    recorded = RecordedParameter(parameter)
    later = attach(parameter, lambda *_: calls.append("later"))
    parameter.sum().backward()
    assert {*calls} == {"earlier", "later"}
    recorded.restore()
    calls.clear()
    parameter.sum().backward()
    assert calls == ["earlier"]
    # Nodes had to live until here, or their hooks would be gone by themselves.
    del earlier, later


def test_memory_comes_back_with_the_values_of_the_buffer() -> None:
    """A value that a synchronizer changed is seen after `restore()`."""
    parameter = nn.Parameter(torch.ones(2, 3))
    address = parameter.data_ptr()
    recorded = RecordedParameter(parameter)
    buffer = torch.full((6,), 7.0)
    parameter.data = buffer.view(2, 3)
    recorded.restore()
    assert parameter.data_ptr() == address
    assert parameter.eq(7).all()


def test_memory_that_was_given_up_comes_back_as_it_was() -> None:
    parameter = nn.Parameter(torch.ones(2, 3))
    address = parameter.data_ptr()
    recorded = RecordedParameter(parameter)
    parameter.data = torch.empty(0)
    recorded.restore()
    assert parameter.data_ptr() == address
    assert parameter.equal(torch.ones(2, 3))


def test_globals_are_the_objects_that_they_were_with_their_items() -> None:
    """Other modules imported containers by name, and modules that came later stay."""
    module = ModuleType("framework")
    ranks, by_name, names = [0], {}, {"dp"}
    module.group, module.ranks, module.by_name, module.names = (
        None,
        ranks,
        by_name,
        names,
    )
    recorded = RecordedGlobals(module)
    ranks.append(1)
    by_name["dp"] = "a group"
    names.clear()
    module.group, module.rank, module.ranks = "a group", 3, [9]
    module.late = ModuleType("framework.late")
    recorded.restore()
    assert (ranks, by_name, names) == ([0], {}, {"dp"})
    assert module.ranks is ranks
    assert module.group is None
    assert not hasattr(module, "rank")
    assert module.late.__name__ == "framework.late"


def test_state_may_be_attributes_of_a_class() -> None:
    class State:
        group: str | None = None

    recorded = RecordedGlobals(State)
    State.group = "a group"
    recorded.restore()
    assert State.group is None
