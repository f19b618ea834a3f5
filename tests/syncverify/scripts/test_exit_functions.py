"""What a script registers with `atexit`."""

import atexit
import sys

import pytest

from syncverify.scripts.exit_functions import exit_functions_run


def register_some(ran: list[str]) -> None:
    atexit.register(ran.append, "first")
    atexit.register(ran.index, "missing")  # raises
    atexit.register(ran.clear)
    atexit.unregister(ran.clear)
    atexit.register(ran.append, "last")


def test_the_last_runs_first_and_an_error_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []
    with exit_functions_run():
        register_some(ran)
        assert not ran
    assert ran == ["last", "first"]
    assert "ValueError" in capsys.readouterr().err


def test_they_run_after_an_exit_and_not_after_an_error() -> None:
    ran: list[str] = []
    with pytest.raises(SystemExit), exit_functions_run():
        register_some(ran)
        sys.exit(3)
    assert ran == ["last", "first"]
    with pytest.raises(KeyError), exit_functions_run():
        register_some(ran)
        raise KeyError
    assert ran == ["last", "first"]
