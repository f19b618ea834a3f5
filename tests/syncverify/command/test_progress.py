"""Lines of progress where the output is no terminal."""

import pytest

from syncverify.command.progress import SearchProgress
from syncverify.report.console import CommandConsole


def test_features_are_named_before_their_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = SearchProgress(CommandConsole(), 200, names_features=True)
    progress.can_skip_features = True
    with progress:
        progress.played(200, 0)
        progress.observed("use=twice", 1, 3, None)
        begun = capsys.readouterr().out
        assert begun.endswith("\n  use: twice")  # a hang would show it
        progress.observed("use=twice", 1, 3, "right")
        progress.observed("use=masked", 2, 3, None)
        progress.observed("use=masked", 2, 3, "wrong")
        progress.observed("event=tail", 3, 3, None)
        progress.observed("event=tail", 3, 3, "not tried")
    assert (begun + capsys.readouterr().out).splitlines()[-3:] == [
        (
            "0 violations of the contract in 200 scenarios; observing 3 features beyond it "
            "(--no-beyond skips this)"
        ),
        "  use: twice right, masked wrong",
        "  event: tail not tried",
    ]


@pytest.mark.parametrize("total", [1, 201, 1999])
def test_progress_takes_few_lines(
    total: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with SearchProgress(CommandConsole(), total) as progress:
        for number in range(1, total + 1):
            progress.played(number, 0)
        for number in range(1, 113):
            progress.observed("use=twice", number, 112, None)
            progress.observed("use=twice", number, 112, "right")
    searching, _, observing = capsys.readouterr().out.partition(" beyond it\n")
    # Four on progress, and one that ends the search.
    assert len(searching.splitlines()) <= 5
    assert observing.splitlines() == [
        "observing: 50 of 112 features",
        "observing: 100 of 112 features",
    ]


def test_a_campaign_tells_its_pace(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(0, 1000, 60))
    progress = SearchProgress(
        CommandConsole(), 20_000, shows_pace=True,
        clock=lambda: float(next(clock)),
    )  # fmt: skip
    with progress:
        for number in range(1001, 1401):  # an earlier call has played 1000
            progress.played(number, 0)
    assert capsys.readouterr().out.splitlines() == [
        (
            "searching, 0 distinct violations: 1200 of 20000 scenarios, 200 a minute, "
            "1 h 34 min left"
        ),
        (
            "searching, 0 distinct violations: 1400 of 20000 scenarios, 200 a minute, "
            "1 h 33 min left"
        ),
    ]
