"""How the process of a command exits."""

import click
import pytest

from syncverify.command.process_exit import BAD_USAGE, run_command
from syncverify.errors import InternalError, SyncverifyError, UsageError


@pytest.fixture(autouse=True)
def _no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["some.command"])


def exits(error: Exception) -> object:
    """Run a command that raises an error, and return the code of its exit."""

    @click.command()
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_command(command, "some.command")
    return ended.value.code


@pytest.mark.parametrize("kind", [UsageError, click.UsageError])
def test_bad_usage_is_one_line_and_a_code(
    kind: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exits(kind("expected a cluster,\nnot 'nonsense'")) == BAD_USAGE
    printed = capsys.readouterr()
    assert printed.err == "some.command: expected a cluster, not 'nonsense'\n"
    assert not printed.out


def test_a_fault_of_the_harness_keeps_its_traceback() -> None:
    fault: SyncverifyError = InternalError("a fault")
    with pytest.raises(InternalError):
        exits(fault)
