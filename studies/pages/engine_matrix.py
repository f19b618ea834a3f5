"""The engine matrix: each feature of autograd, played on real subjects.

python -m studies.pages.engine_matrix [FILE]

writes the table of the documentation anew. It takes a few minutes, and a C++ compiler.
"""

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from studies.documents import table, write_part
from studies.pages import overflow
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.feature_row import base_word
from syncverify.scenario.feature_table import FEATURES, OPTIONAL, PLAIN, WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.run import Run

BACKENDS: Final = ("sim", "gloo")
SUBJECTS: Final = ("synchronizer", "ddp")
PAGE: Final = Path("docs/reference/engine-matrix.md")
# Words that ranks on threads of one process cannot play, and why.
NOT_SIMULATED: Final = {
    "compiled_autograd": "it is on or off for a whole process, and simulated ranks share one"
}
RIGHT, ERROR, WRONG = "right", "clear error", "SILENTLY WRONG"
_ABOUT_VALUES = {"gradient_equals_reference", "replicas_agree", "unreduced_stay_local"}
_NOT_PROMISED = "not promised"

OVERFLOW: Final = (
    "step",
    "overflow_on_one_rank",
    "autocast and `GradScaler`: rank 0's gradient is infinite, and all ranks skip the step",
)


def words() -> Iterator[tuple[str, str, str]]:
    """Yield the topic, the word and the meaning of each row."""
    for topic in ("use", "backward"):
        for word, row in WORDS[topic].items():
            if base_word(word) == word:
                yield topic, word, row.meaning


def scenario_of(topic: str, word: str) -> Scenario:
    """Make the scenario of a row, which needs no DTensor."""
    use = word if topic == "use" else PLAIN
    shapes: list[tuple[int, ...]] = [(3,), (2, 3), (5,)]
    if word == "added_to_another":
        shapes = [(3,), (3,), (3,)]
    parameters = tuple(
        ParameterSpec(f"p{index}", shape, ("R",), use=use)
        for index, shape in enumerate(shapes)
    )
    return Scenario(
        mesh=MeshSpec((2,), ("dp",)),
        parameters=parameters,
        accumulations=(2, 1, 2),
        bucket_cap_bytes=32,
        backward=word if topic == "backward" else PLAIN,
    )


def cell(topic: str, word: str, backend: str, subject: Subject) -> str:
    """Play one cell.

    Args:
        topic: `use` or `backward`.
        word: Word of the topic.
        backend: `sim` or `gloo`.
        subject: The synchronizer.

    Returns:
        The text of the cell.
    """
    if backend == "sim" and word in NOT_SIMULATED:
        return "not simulated"
    scenario = scenario_of(topic, word)
    outcome = _verdict(scenario, _player(backend).run(scenario, subject), subject)
    promised = (topic, word) not in OPTIONAL or subject.capabilities.covers(topic, word)
    return outcome if promised else f"{_NOT_PROMISED} ({outcome.lower()})"


def _player(backend: str) -> SimBackend | GlooBackend:
    return SimBackend() if backend == "sim" else _gloo()


def _verdict(scenario: Scenario, run: Run, subject: Subject) -> str:
    violations = check(scenario, run, subject.capabilities)
    if not violations:
        return RIGHT if run.fault is None else ERROR
    is_raised = run.fault is not None and run.fault.kind == "raised"
    # An error announces unfinished work, but not a wrong gradient that was read before.
    is_wrong = any(each.property in _ABOUT_VALUES for each in violations)
    return ERROR if is_raised and not is_wrong else WRONG


def row(topic: str, word: str) -> list[str]:
    """Play one row, a cell for each subject and backend."""
    return [cell(topic, word, backend, subject) for subject, backend in _columns()]


def overflow_row() -> list[str]:
    """Play the overflow, a cell for each subject and backend."""
    return [overflow_cell(backend, subject) for subject, backend in _columns()]


def _columns() -> Iterator[tuple[Subject, str]]:
    return itertools.product(map(resolve, SUBJECTS), BACKENDS)


def overflow_cell(backend: str, subject: Subject) -> str:
    """Play the overflow on one backend.

    Args:
        backend: `sim` or `gloo`.
        subject: The synchronizer.

    Returns:
        The text of the cell.
    """
    program = overflow.overflowing(subject)
    run = _player(backend).run(overflow.SCENARIO, program)
    if run.fault is not None and run.fault.identity == overflow.OVERLOOKED:
        return WRONG
    return _verdict(overflow.SCENARIO, run, subject)


def page(rows: Iterable[tuple[str, str, str, list[str]]]) -> str:
    """Return the part of the page that is played, in Markdown.

    Args:
        rows: Topic, word, meaning and cells of each row.
    """
    heads = [f"`{name}` on {backend}" for name in SUBJECTS for backend in BACKENDS]
    cells = ((topic, f"`{w}`", meaning, *own) for topic, w, meaning, own in rows)
    lines = [
        *table(("topic", "word", "meaning", *heads), cells),
        "",
        *(f"`{word}` is not simulated: {why}." for word, why in NOT_SIMULATED.items()),
        "",
        "Searches do not draw:",
        "",
        *(
            f"- `{each.value}`: {row.rare}"
            for each, row in FEATURES.items()
            if row.rare
        ),
    ]
    return "\n".join(lines)


def main(path: Path = PAGE) -> None:
    """Play all rows, and write the page."""
    played = [(topic, word, text, row(topic, word)) for topic, word, text in words()]
    write_part(path, "matrix", page([*played, (*OVERFLOW, overflow_row())]))
    close()


def close() -> None:
    """End the processes that played rows."""
    _gloo().close()
    _gloo.cache_clear()


@functools.cache
def _gloo() -> GlooBackend:
    """Start processes once, since a start takes seconds."""
    return GlooBackend()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
