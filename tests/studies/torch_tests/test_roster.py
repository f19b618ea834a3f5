"""The files that are played, of those that a source has."""

from pathlib import Path

from studies.torch_tests.results import TESTS
from studies.torch_tests.roster import played


def test_files_of_torch_and_of_copies_are_played(tmp_path: Path) -> None:
    files = {
        "_tensor/test_init.py",
        "fsdp2/test_fully_shard_comm.py",
        "tensor/test_init.py",
        "test_device_mesh.py",
    }
    for name in (*files, "checkpoint/test_utils.py", "tensor/test_other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {*played(tmp_path)} == files


def test_each_stored_file_is_in_the_roster(tmp_path: Path) -> None:
    stored = {row.file for row in TESTS.read()}
    for name in stored:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {*played(tmp_path)} == stored
