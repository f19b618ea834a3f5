"""All causes: the one table of their names, meanings and hints.

A row is found by the name that a report prints, and a new cause is a row: in `of_runs.py` where
calls, their order or their ends show it, in `of_values.py` where a gradient does, in
`of_trainings.py` where only a whole training can have it.
"""

from typing import Final

from syncverify.judge.causes.of_runs import OF_RUNS
from syncverify.judge.causes.of_trainings import OF_TRAININGS
from syncverify.judge.causes.of_values import OF_GRADIENTS

CAUSES: Final = {**OF_RUNS, **OF_GRADIENTS, **OF_TRAININGS}
VAGUE_CAUSES: Final = frozenset(n for n, each in CAUSES.items() if each.is_vague)
VALUE_CAUSES: Final = frozenset(n for n, each in CAUSES.items() if each.is_of_value)
# The other hints: what a report says in the place of a hint, or, from a comma on, after it.
ADVICE: Final = {
    "left_over": "reset the left-over values in wait() or zero_grad()",
    "rounded_down": (
        "round up, since the rest after an integer division is left out: `-(-n // k)` or "
        "`math.ceil(n / k)`; pad an input of which all parts have to be equal"
    ),
    "no_backend": (
        "the tensors lie in memory of the CPU, and the group's backend is nccl: move them to the device, "
        'as by `.cuda()`, or communicate over a group of gloo, as by `new_group(backend="gloo")`; '
        '`--device cpu`, or `device = "cpu"` in a file of `syncverify parity`, plays a program without GPUs'
    ),
    "all_send": (
        "let one of the two ranks receive first, or use `batch_isend_irecv` or `isend`: a send ends "
        "when its peer receives"
    ),
    "after_right_step": (
        "; only a step after a right step is wrong: look for a counter, or a number of "
        "micro-batches, that is not reset"
    ),
    "other_count": (
        "; step {step} has {count} micro-batches, and the step before had {before}: look at what "
        "set_required_accumulations() changes"
    ),
    "groups": (
        "; {argument} is a list of lists of parameters, [[p0, p1], [p2]], and not a flat "
        "list or the dicts of an optimizer: `for group in {argument}: for parameter in "
        "group: ...`"
    ),
    "loops": (
        "; run a loop that communicates equally often on every rank: no `continue` or `break` on one "
        "rank alone, and as many batches"
    ),
    "frozen": (
        ", and also a bucket that holds a parameter without a gradient (frozen): count "
        "only parameters that require one"
    ),
}
