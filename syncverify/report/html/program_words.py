"""The training program of a scenario in words: the actions that the rank program executes."""

from __future__ import annotations

from typing import Any, assert_never

from syncverify.plain_text import counted
from syncverify.playing.program import training_program as program
from syncverify.scenario.scenario import Scenario


def program_words(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the parts of the training program in order, each with its actions in words.

    The first number of backwards stands beside the synchronizer that is made: its constructor
    takes it, or `set_required_accumulations()` does.
    """
    parts = program.training_program(scenario, takes_count=True)
    end = (parts.unbind, *parts.after_unbind)
    return [
        {"title": "before step 0", "actions": [*map(_word, parts.start)]},
        *(
            {
                "title": f"step {step.number}",
                "actions": [*map(_word, (*step.before, *step.within, *step.after))],
            }
            for step in parts.steps
        ),
        {"title": "after the last step", "actions": [*map(_word, end)]},
    ]


def _word(action: program.Action) -> str:
    match action:
        case program.Make(count=count):
            return f"make a synchronizer, for {counted(count or 0, 'backward')} in its first step"
        case program.Call(method=method, arguments=arguments, otherwise=otherwise):
            instead = f", or {otherwise}() without that method" if otherwise else ""
            return f"{method}({', '.join(map(str, arguments))}){instead}"
        case program.Backward(
            micro_batch=micro_batch, fails=fails, even_ranks_alone=alone
        ):
            where = ", on even ranks alone" if alone else ""
            return f"backward of micro-batch {micro_batch}{', which raises' if fails else ''}{where}"
        case program.Evaluate():
            return "forward under `no_grad`, without a backward"
        case program.Recover(call=call):
            return _word(call)
        case program.Change(kind=kind):
            return f"{kind} parameters"
        case program.Replace(factor=factor, every=every, first=first):
            return f"set {_some(every, first)} to its product with {factor:g}"
        case program.Drop(every=every, first=first):
            return f"set {_some(every, first)} to None"
        case program.Update():
            return "update the parameters in place"
        case program.PlainBackward():
            return "backward without a synchronizer"
        case program.Observe():
            return "read the gradients"
    assert_never(action)


def _some(every: int, first: int) -> str:
    which = "each" if every == 1 else "every other"
    return f"{which} `.grad`" + (", from the second one on," if first else "")
