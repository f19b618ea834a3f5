"""The table of other projects' test cases names a test of ours for each, or a reason."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from studies.pages.cases_page import SUITES, TESTS, VERDICTS, Case, cases


@cache
def functions() -> frozenset[str]:
    """Return the tests of the suite, as `file::function`."""
    return frozenset(
        f"{file.name}::{node.name}"
        for file in TESTS.glob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def problems(listed: Iterable[Case]) -> Iterator[str]:
    found, seen = functions(), set()
    for case in listed:
        if (case.suite, case.name) in seen:
            yield f"{case.name} is listed twice"
        seen.add((case.suite, case.name))
        if case.suite not in SUITES or case.verdict not in VERDICTS:
            yield f"{case.name}: {case.suite}, {case.verdict}"
        if case.verdict == "does not apply" and (case.test or not case.reason):
            yield f"{case.name} has a test or no reason"
        if case.verdict != "does not apply" and case.test not in found:
            yield f"{case.name}: there is no {case.test}"
        if (case.verdict == "refuses") != ("refused" in case.test):
            yield f"{case.name}: {case.test} is {case.verdict}"


def test_every_case_has_a_test_or_a_reason() -> None:
    assert cases()
    assert list(problems(cases())) == []


def test_every_test_is_of_a_case() -> None:
    assert functions() == {case.test for case in cases() if case.test}


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="the table is of torch 2.13"
)
def test_every_case_of_ddp_in_torch_is_listed() -> None:
    file = Path(find_spec("torch").origin).parent
    text = (file / "testing/_internal/distributed/distributed_test.py").read_text()
    kinds = "ddp|DDP|DistributedDataParallel|SyncBatchNorm|localSGD|no_sync"
    names = set(re.findall(rf"def (test_\w*(?:{kinds})\w*)\(", text))
    # torch 2.13 has 97: a pattern that misses a kind of name finds fewer.
    assert len(names) > 90
    assert names <= {case.name.partition(",")[0] for case in cases()}


def test_mistakes_in_the_table_are_found() -> None:
    right = Case("gloo", "a", "passes", "test_dtypes.py::test_sparse_gradients", "")
    assert list(problems([right])) == []
    assert list(problems([right, right])) == ["a is listed twice"]
    mistakes = [
        right._replace(suite="glue"),
        right._replace(verdict="does not apply"),
        right._replace(verdict="does not apply", test=""),
        right._replace(test="test_dtypes.py::test_nothing"),
        right._replace(verdict="refuses"),
    ]
    for mistake in mistakes:
        assert len(list(problems([mistake]))) == 1, mistake
