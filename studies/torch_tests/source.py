"""torch's own tests: where they come from, and the folder that they are played in.

They are taken unchanged from torch's repository at the tag of the installed torch: downloaded, or
read from a checkout or a git directory. A checkout of torch_npu will do where torch's own cannot
be had. That project keeps copies of torch's tests for its NPUs, and the names of its devices and
of its helpers are put back; nothing else of the copies is changed.
"""

import io
import re
import shutil
import subprocess
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from syncverify.errors import UsageError

Kind = Literal["torch", "torch_npu"]

_TESTS: Final = "test/distributed"
_ARCHIVE: Final = "https://github.com/pytorch/pytorch/archive/refs/tags/{tag}.tar.gz"
_PATIENCE_SECONDS: Final = 600
# In the copies of torch_npu: the names of torch_npu's helpers, and torch's.
_HELPERS: Final = (
    (
        r"torch_npu\.testing\._internal\.common_fsdp",
        "torch.testing._internal.common_fsdp",
    ),
    (
        r"torch_npu\.testing\._internal\.common_dtensor",
        "torch.testing._internal.distributed._tensor.common_dtensor",
    ),
    (
        r"torch_npu\.testing\.(common_distributed|common_utils|testcase)",
        "names_put_back",
    ),
    (r"torch_npu\.distributed\.pipelining", "torch.distributed.pipelining"),
    (r"\bFSDPNPUTest\b", "FSDPTest"),
    (r"\bNPUDTensorTestBase\b", "DTensorTestBase"),
    (r"(?m)^(import torch_npu|from torch_npu\.contrib).*$", ""),
)
# What those helpers do, in torch's words; `SupportedDevices` chooses among models of NPUs.
_NAMES: Final = """\
from functools import wraps

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import TEST_SKIPS, skip_if_lt_x_gpu
from torch.testing._internal.common_utils import TestCase, run_tests


def init_pg(backend="BACKEND", world_size=1, rank=0, file_name=""):
    where = {"world_size": world_size, "rank": rank, "init_method": f"file://{file_name}"}
    dist.init_process_group(backend, **where)


def with_comms(test):
    @wraps(test)
    def with_group(self, *args, **kwargs):
        init_pg("BACKEND", self.world_size, self.rank, self.file_name)
        test(self, *args, **kwargs)
        self.destroy_pg()

    return with_group


def skipIfUnsupportMultiNPU(number):
    return skip_if_lt_x_gpu(number, allow_cpu=True)


def SupportedDevices(_models):
    return lambda test: test
"""
_BACKENDS: Final = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True, slots=True)
class Source:
    """Tests in a folder.

    Attributes:
        kind: Whose copy it is.
        name: The tag or the commit.
    """

    kind: Kind
    name: str


def fetched(folder: Path, source: Path | None) -> Source:
    """Put the tests into a folder, in `cuda` and `cpu`, and say where they are from.

    Args:
        folder: Folder outside of the checkout.
        source: A checkout or a git directory of torch, or of torch_npu; None downloads.

    Returns:
        Whose tests they are, and which.

    Raises:
        UsageError: The source has no tests.
    """
    tag = f"v{torch.__version__.partition('+')[0]}"
    if source is None:
        archive, name = _downloaded(tag), tag
    else:
        archive, name = _archived(source, tag)
    files = {path: text for path, text in _files(archive) if path.endswith(".py")}
    if not files:
        raise UsageError(f"expected {_TESTS} in {str(source or tag)!r}")
    is_npu = any("torch_npu" in text for text in files.values())
    for device in ("cuda", "cpu"):
        for path, text in files.items():
            file = folder / device / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_put_back(text, device) if is_npu else text, "utf-8")
            if is_npu:
                names = _NAMES.replace("BACKEND", _BACKENDS[device])
                (file.parent / "names_put_back.py").write_text(names, "utf-8")
    return Source("torch_npu" if is_npu else "torch", name)


def added(folder: Path, own: Path) -> list[str]:
    """Put some of torch's own files, unchanged, beside copies.

    Args:
        folder: The folder of `fetched`.
        own: A folder with `test/distributed`.

    Returns:
        Paths of the files below `test/distributed`.

    Raises:
        UsageError: The folder has no tests.
    """
    tests = own / _TESTS
    files = sorted(tests.rglob("*.py"))
    if not files:
        raise UsageError(f"expected {_TESTS} in {str(own)!r}")
    for device in _BACKENDS:
        for file in files:
            place = folder / device / file.relative_to(tests)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    return [file.relative_to(tests).as_posix() for file in files]


def _downloaded(tag: str) -> bytes:
    address = _ARCHIVE.format(tag=tag)
    with urllib.request.urlopen(address, timeout=_PATIENCE_SECONDS) as answer:
        content: bytes = answer.read()
    return content


def _archived(source: Path, tag: str) -> tuple[bytes, str]:
    """Return the archive of a commit, and its name: that of the tag, or the newest one."""
    for name in (tag, "HEAD"):
        command = [
            "git", "-C", str(source), "rev-parse", "--short=12", f"{name}^{{commit}}",
        ]  # fmt: skip
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            commit = found.stdout.strip()
            archive = ["git", "-C", str(source), "archive", commit, _TESTS]
            done = subprocess.run(archive, capture_output=True, check=False)
            return done.stdout, tag if name == tag else f"commit {commit}"
    raise UsageError(f"expected a git directory, not {str(source)!r}")


def _files(archive: bytes) -> list[tuple[str, str]]:
    """Return path below `test/distributed`, and text, of each file of an archive."""
    if not archive:
        return []
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return [
            (each.name.partition(f"{_TESTS}/")[2], _text(files, each))
            for each in files
            if each.isfile() and f"{_TESTS}/" in each.name
        ]


def _text(files: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = files.extractfile(member)
    assert content is not None
    return content.read().decode("utf-8", errors="replace")


def _put_back(text: str, device: str) -> str:
    """Return the text of a test of torch_npu with torch's names."""
    for pattern, name in _HELPERS:
        text = re.sub(pattern, name, text)
    backend = _BACKENDS[device]
    text = text.replace("hccl", backend).replace("HCCL", backend.upper())
    text = re.sub(r"""\bnpu(?=:|["'])""", device, text)
    if device == "cpu":
        # A machine without GPUs has one CPU, and as many processes as a test asks for.
        text = re.sub(r"\btorch\.npu\.device_count\(\)", "4", text)
        text = re.sub(r"\btorch\.npu\.(manual_seed|initial_seed)", r"torch.\1", text)
        text = text.replace(".npu()", ".cpu()")
    text = re.sub(r"\btorch(_npu)?\.npu\b", f"torch.{device}", text)
    return text.replace(".npu(", f".{device}(")
