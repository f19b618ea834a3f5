"""Stored results, one record a line; rules by which a disturbed command is judged."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from studies.kills.trial import Trial, played
from studies.rows import RowFile
from syncverify.errors import UsageError


@dataclass(frozen=True)
class _Fruit:
    name: str
    number: int
    colors: tuple[str, ...] = ()
    eaten: bool = False


@pytest.fixture
def file(tmp_path: Path) -> RowFile[_Fruit]:
    return RowFile(tmp_path / "fruits.jsonl", _Fruit, key=("name",))


def test_rows_are_lines_in_the_order_of_their_keys_and_one_for_each_key(
    file: RowFile[_Fruit],
) -> None:
    file.put(_Fruit("plum", 2, ("blue",)), _Fruit("fig", 1))
    assert file.path.read_text() == (
        '{"name": "fig", "number": 1}\n'
        '{"colors": ["blue"], "name": "plum", "number": 2}\n'
    )
    file.put(_Fruit("plum", 3, ("red", "blue"), eaten=True))
    assert file.read() == [
        _Fruit("fig", 1),
        _Fruit("plum", 3, ("red", "blue"), eaten=True),
    ]


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", '{"name": "fig"}', '{"name": "fig", "number": 1, "x": 1}']
)
def test_a_line_of_other_fields_is_named(file: RowFile[_Fruit], line: str) -> None:
    file.path.write_text(f'{{"name": "fig", "number": 1}}\n{line}\n')
    with pytest.raises(UsageError, match=r"fruits\.jsonl:2: "):
        file.read()


HELD = Trial(
    *(0, "gloo", True, 1, False),
    kills=[("worker", "SIGKILL")],
    code=0,
    output="NO VIOLATION: it held",
)
FOUND = replace(HELD, is_right=False, code=1, output="1 VIOLATION: it did not")


@pytest.mark.parametrize(
    ("trial", "fault"),
    [
        (HELD, None),
        (FOUND, None),
        (replace(HELD, code=3, output="no verdict"), None),
        (replace(HELD, kills=[("owner", "SIGINT")], code=130, output=""), None),
        (replace(FOUND, kills=[("owner", "SIGKILL")], code=-9, output=""), None),
        (replace(HELD, is_right=False), "exit code 0"),
        (replace(FOUND, is_right=True), "exit code 1"),
        (replace(HELD, output=""), "exit code 0 without a verdict"),
        (replace(FOUND, output="FOUND every_rank_finishes (process_died)"),
         "the subject is blamed for a kill"),
        (replace(HELD, left=["worker"]), "left behind: worker"),
        (replace(HELD, code=None), "did not end within 150 s"),
        (replace(HELD, code=3, output="Traceback"), "a traceback"),
        # Nothing but a signal to its owner ends a command by a signal.
        (replace(HELD, code=-9), "exit code -9"),
    ],
)  # fmt: skip
def test_an_end_is_as_it_should_be_or_has_a_fault(
    trial: Trial, fault: str | None
) -> None:
    assert trial.faults() == [] if fault is None else fault in trial.faults()


@pytest.mark.long
def test_a_command_ends_as_it_should_when_a_process_is_killed() -> None:
    trial = played(2)
    assert trial.kills
    assert trial.faults() == []
