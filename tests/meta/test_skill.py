"""SKILL.md is followed literally: file, output, commands and exit codes."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.pages.followed import followed, without_times
from syncverify.command.options import cli
from tests.warm_python import page_command, page_output

PAGE = (Path(__file__).parents[2] / "SKILL.md").read_text(encoding="utf-8")
# A line of an `sh` block: a command, and the exit code that it ends with.
ENDS = re.compile(r"^(syncverify .*?) +# exit code (\d)$", re.MULTILINE)
NAMED = re.findall(
    r"`(?:syncverify )?((?:run|replay|probe|explain|read|export|init|simulate|parity) [^`]*)`",
    PAGE,
)


@pytest.mark.long(20)
def test_page_shows_real_output_and_real_exit_codes(tmp_path: Path) -> None:
    shown = followed(PAGE, tmp_path, page_output)
    assert without_times(shown) == without_times(PAGE)
    commands = ENDS.findall(PAGE)
    assert [code for _, code in commands] == ["0", "0", "2"]
    for command, code in commands:
        done = page_command(command, tmp_path)
        assert done.returncode == int(code), f"{command}: {done.stdout}"


@pytest.mark.parametrize("line", sorted(set(NAMED)))
def test_each_command_and_its_options_exist(line: str) -> None:
    name, *words = line.split()
    helped = CliRunner().invoke(cli, [name, "--help"])
    assert helped.exit_code == 0
    options = {word for word in words if word.startswith("--")}
    assert options <= {*re.findall(r"^ +(--[\w-]+)", helped.output, re.MULTILINE)}
