"""Lines of progress where the output is no terminal."""

import pytest

from syncverify.command.progress import SearchProgress
from syncverify.report.console import CommandConsole


def test_features_are_named_before_their_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = SearchProgress(CommandConsole(), 200, "mine:Sync", "sim")
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
        "0 violation(s) of the contract in 200 scenarios; observing 3 features beyond it",
        "  use: twice right, masked wrong",
        "  event: tail not tried",
    ]
