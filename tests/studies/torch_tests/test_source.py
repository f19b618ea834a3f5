"""Where torch's own tests come from."""

import subprocess
from pathlib import Path

import pytest
import torch

from studies.torch_tests.source import Source, added, fetched
from syncverify.errors import UsageError

_NAMES = ("-c", "user.name=tests", "-c", "user.email=tests@tests.tests")
_OF_TORCH = 'DEVICE = "cuda"  # an npu, and hccl\n'
_COPY = """\
import torch
import torch_npu
from torch_npu.testing._internal.common_fsdp import FSDPNPUTest
from torch_npu.testing.common_distributed import with_comms

BACKEND, PLACE, COUNT = "hccl", "rank:0/npu:0", torch.npu.device_count()
torch.ones(1).npu()
"""


def _repository(folder: Path, text: str, *, tag: str = "") -> Path:
    file = folder / "test" / "distributed" / "test_one.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "tests"]):
        subprocess.run(["git", "-C", str(folder), *_NAMES, *command], check=True)
    if tag:
        subprocess.run(["git", "-C", str(folder), "tag", tag], check=True)
    return folder


def test_torchs_own_are_taken_unchanged_at_the_tag(tmp_path: Path) -> None:
    tag = f"v{torch.__version__.partition('+')[0]}"
    repository = _repository(tmp_path / "torch", _OF_TORCH, tag=tag)
    (repository / "test" / "distributed" / "test_one.py").write_text("changed")
    assert fetched(tmp_path / "tests", repository) == Source("torch", tag)
    for device in ("cuda", "cpu"):
        assert (tmp_path / "tests" / device / "test_one.py").read_text() == _OF_TORCH


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda", ('"nccl", "rank:0/cuda:0", torch.cuda.device_count()', ".cuda()")),
        ("cpu", ('"gloo", "rank:0/cpu:0", 4', ".cpu()")),
    ],
)
def test_names_are_put_back_in_copies(
    tmp_path: Path, device: str, expected: tuple[str, str]
) -> None:
    source = fetched(tmp_path / "tests", _repository(tmp_path / "copies", _COPY))
    assert source.kind == "torch_npu"
    assert source.name.startswith("commit ")
    text = (tmp_path / "tests" / device / "test_one.py").read_text()
    assert "from torch.testing._internal.common_fsdp import FSDPTest\n" in text
    assert "from names_put_back import with_comms\n" in text
    assert "import torch_npu" not in text
    assert all(each in text for each in expected)
    compile(
        (tmp_path / "tests" / device / "names_put_back.py").read_text(), "names", "exec"
    )


def test_torchs_own_files_lie_unchanged_beside_copies(tmp_path: Path) -> None:
    own = _repository(tmp_path / "4c8b95514429", _OF_TORCH)
    assert added(tmp_path / "tests", own) == ["test_one.py"]
    for device in ("cuda", "cpu"):
        assert (tmp_path / "tests" / device / "test_one.py").read_text() == _OF_TORCH
    with pytest.raises(UsageError, match=r"^expected test/distributed in "):
        added(tmp_path / "tests", tmp_path / "tests")


def test_source_without_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^expected a git directory, not "):
        fetched(tmp_path / "tests", tmp_path)
