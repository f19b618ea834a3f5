"""What a script registers with `atexit`."""

import atexit

import pytest

from syncverify.scripts.exit_functions import exit_functions_run


def register_some(ran: list[str]) -> None:
    atexit.register(ran.append, "first")
    atexit.register(ran.index, "missing")  # raises
    atexit.register(ran.clear)
    atexit.unregister(ran.clear)
    atexit.register(ran.append, "last")


def test_the_last_runs_first_and_an_error_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []
    with exit_functions_run():
        register_some(ran)
        assert not ran
    assert ran == ["last", "first"]
    assert "ValueError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("end", "expected"),
    [(SystemExit(3), ["last", "first"]), (KeyError(), [])],
    ids=["exit", "error"],
)
def test_exit_functions_run_after_an_exit_and_not_after_an_error(
    end: BaseException, expected: list[str]
) -> None:
    ran: list[str] = []

    def script() -> None:
        with exit_functions_run():
            register_some(ran)
            raise end

    with pytest.raises(type(end)):
        script()
    assert ran == expected
