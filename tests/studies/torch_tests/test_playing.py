"""Results of tests as pytest reports them."""

from xml.etree import ElementTree

import pytest

from studies.torch_tests.playing import Result, results_of

_CASE = '<testcase classname="test_one.Test" name="test_sum">{}</testcase>'


def _result(child: str) -> Result:
    ((name, result),) = results_of([ElementTree.fromstring(_CASE.format(child))])
    assert name == "Test.test_sum"
    return result


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        ("", Result("passed", "")),
        ('<skipped message="Need 2 GPUs" />', Result("skipped", "Need 2 GPUs")),
        (
            '<failure message="ValueError: 3&#10;more" />',
            Result("failed", "ValueError: 3"),
        ),
    ],
)
def test_a_result_has_the_first_line_of_its_reason(
    child: str, expected: Result
) -> None:
    assert _result(child) == expected


@pytest.mark.parametrize(
    "first",
    [
        "RuntimeError: Process 2 exited with error code 10 and exception:",
        "RuntimeError: Thread 14 exited with exception:",
        "RuntimeError: Exception in worker process:",
    ],
)
def test_of_ranks_that_raise_the_first_exception_counts(first: str) -> None:
    shown = (
        f"E    {first}\nE    Traceback\nE      torch.own.ValueError: on it\nE    more"
    )
    cut = f"{first}&#10;Traceback (most recent call last):&#10;[+39 more lines]"
    result = _result(f'<failure message="{cut}">{shown}</failure>')
    assert result.message == "ValueError: on it"
