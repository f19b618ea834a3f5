"""The example whose test the threaded process group passes by luck."""

import pytest

from tests.warm_python import ROOT, python


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ([], "2 passed"),
        (["--simulate-ranks"], "1 failed, 1 passed"),
        (["--simulate-ranks", "--simulate-judged=values"], "2 passed"),
    ],
)
def test_wait_is_missing_on_simulated_ranks_alone(
    options: list[str], outcome: str
) -> None:
    command = ("-m", "pytest", "-q", "-o", "addopts=", "-W", "ignore")
    shown = python(*command, "examples/side_stream.py", *options, folder=ROOT).stdout
    assert outcome in shown
    named = (
        "insert `stream 1.wait_stream(default)` before examples/side_stream.py" in shown
    )
    assert named == outcome.startswith("1 failed")
