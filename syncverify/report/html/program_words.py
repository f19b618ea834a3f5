"""The training program of a scenario in words: the actions that the rank program executes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from syncverify.plain_text import counted
from syncverify.playing.program.training_program import (
    Action,
    Backward,
    Call,
    Change,
    Drop,
    Evaluate,
    Make,
    Observe,
    PlainBackward,
    Recover,
    Replace,
    Update,
    training_program,
)
from syncverify.scenario.scenario import Scenario


def program_words(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the parts of the training program in order, each with its actions in words.

    The first number of backwards stands beside the synchronizer that is made: its constructor
    takes it, or `set_required_accumulations()` does.
    """
    program = training_program(scenario, takes_count=True)
    end = (program.unbind, *program.after_unbind)
    return [
        {"title": "before step 0", "actions": _words(program.start)},
        *(
            {
                "title": f"step {step.number}",
                "actions": _words((*step.before, *step.within, *step.after)),
            }
            for step in program.steps
        ),
        {"title": "after the last step", "actions": _words(end)},
    ]


def _words(actions: Iterable[Action]) -> list[str]:
    return [*map(_word, actions)]


def _word(action: Action) -> str:
    match action:
        case Make(count=count):
            return f"make a synchronizer, for {counted(count or 0, 'backward')} in its first step"
        case Call(method=method, arguments=arguments, otherwise=otherwise):
            instead = f", or {otherwise}() without that method" if otherwise else ""
            return f"{method}({', '.join(map(str, arguments))}){instead}"
        case Backward(micro_batch=micro_batch, fails=fails, even_ranks_alone=alone):
            where = ", on even ranks alone" if alone else ""
            return f"backward of micro-batch {micro_batch}{', which raises' if fails else ''}{where}"
        case Evaluate():
            return "forward under `no_grad`, without a backward"
        case Recover(call=call):
            return _word(call)
        case Change(kind=kind):
            return f"{kind} parameters"
        case Replace(factor=factor, every=every, first=first):
            return f"set {_some(every, first)} to its product with {factor:g}"
        case Drop(every=every, first=first):
            return f"set {_some(every, first)} to None"
        case Update():
            return "update the parameters in place"
        case PlainBackward():
            return "backward without a synchronizer"
        case Observe():
            return "read the gradients"
    assert_never(action)


def _some(every: int, first: int) -> str:
    which = "each" if every == 1 else "every other"
    return f"{which} `.grad`" + (", from the second one on," if first else "")
