"""The wheel holds three whole packages under one name, and works without the checkout."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
INNER = ("synchronizer", "strategies")

pytestmark = pytest.mark.slow


def python(*arguments: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Run this interpreter in another folder, with only `path` put before its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    python(
        "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target")
    python(*pip, folder, wheel, cwd=folder)
    return folder


@pytest.mark.long
def test_wheel_ships_one_name_and_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert len({*names}) == len(names)
    (metadata,) = {name.partition("/")[0] for name in names} - {"syncverify"}
    assert metadata.startswith("syncverify-")
    assert metadata.endswith(".dist-info")
    assert "syncverify/py.typed" in names


@pytest.mark.long
def test_wheel_ships_every_file_of_the_packages(wheel: Path) -> None:
    """An ignore pattern that is too broad drops files from the wheel silently."""
    sources = {
        (inside / file.relative_to(ROOT / package)).as_posix()
        for package, inside in {
            "syncverify": Path("syncverify"),
            **{name: Path("syncverify") / name for name in INNER},
        }.items()
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert sources - {*ZipFile(wheel).namelist()} == set()


@pytest.mark.long
def test_installed_command_writes_the_recipes(installed: Path, tmp_path: Path) -> None:
    """Templates are data, which an import would not miss."""
    command = ("-m", "syncverify", "init", "mine", "--like", "hooks")
    assert "next: pytest mine" in python(*command, cwd=tmp_path, path=installed)
    assert (tmp_path / "mine" / "my_subject.py").is_file()
