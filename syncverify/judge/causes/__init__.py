"""All causes: the one table of their names, meanings and hints.

A row is found by the name that a report prints, and a new cause is a row: in `of_runs.py` where
calls, their order or their ends show it, in `of_values.py` where a value does.
"""

from typing import Final

from syncverify.judge.causes.of_runs import OF_RUNS
from syncverify.judge.causes.of_values import OF_GRADIENTS

CAUSES: Final = {**OF_RUNS, **OF_GRADIENTS}
VAGUE_CAUSES: Final = frozenset(n for n, each in CAUSES.items() if each.is_vague)
VALUE_CAUSES: Final = frozenset(n for n, each in CAUSES.items() if each.is_of_value)
