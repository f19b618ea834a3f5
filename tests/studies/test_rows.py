"""Stored results: what is written is read, one record a line."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from studies.rows import RESULTS, RowFile
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


def test_rows_are_read_as_written_in_the_order_of_their_keys(
    file: RowFile[_Fruit],
) -> None:
    plum, fig = _Fruit("plum", 2, ("blue", "red")), _Fruit("fig", 1, eaten=True)
    file.write([plum, fig])
    assert file.read() == [fig, plum]


def test_a_row_is_a_line_with_sorted_names_and_without_defaults(
    file: RowFile[_Fruit],
) -> None:
    file.write([_Fruit("plum", 2, ("blue",))])
    assert (
        file.path.read_text() == '{"colors": ["blue"], "name": "plum", "number": 2}\n'
    )


def test_a_new_row_replaces_the_one_of_its_key(file: RowFile[_Fruit]) -> None:
    file.put(_Fruit("plum", 2), _Fruit("fig", 1))
    file.put(_Fruit("plum", 3))
    assert file.read() == [_Fruit("fig", 1), _Fruit("plum", 3)]


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", '{"name": "fig"}', '{"name": "fig", "number": 1, "x": 1}']
)
def test_a_line_of_other_fields_is_named(file: RowFile[_Fruit], line: str) -> None:
    file.path.write_text(f'{{"name": "fig", "number": 1}}\n{line}\n')
    with pytest.raises(UsageError, match=r"fruits\.jsonl:2: "):
        file.read()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda p: p.stem)
def test_stored_rows_are_flat_and_have_sorted_names(path: Path) -> None:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert records
    assert [[*record] for record in records] == [sorted(each) for each in records]
    values = [value for record in records for value in record.values()]
    lists = [value for value in values if isinstance(value, list)]
    parts = [part for each in lists for part in each]
    assert {type(each) for each in [*values, *parts]} <= {str, int, float, bool, list}
    assert all(isinstance(part, str) for part in parts)
