"""A wheel holds three whole packages under one name; short names are a user's own.

Environments have a wheel, or an editable install, and the dependencies of this one by a `.pth`
file, so nothing is downloaded.
"""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
MINE = ("strategies", "synchronizer")
PIP = ("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--ignore-installed")

pytestmark = [pytest.mark.slow, pytest.mark.long]


def run(*command: str | Path, cwd: Path) -> str:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=variables, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def environment(folder: Path) -> Path:
    """Make a virtual environment that has our dependencies, and not our packages."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # Files of this kind are read in order, and that of an editable install needs `editables`.
    (packages / "0.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("built")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    run(sys.executable, *build, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    python = environment(folder / "environment")
    run(python, *PIP, built, cwd=folder)
    return python


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment into which the checkout is installed."""
    folder = tmp_path_factory.mktemp("editable")
    python = environment(folder / "environment")
    run(python, *PIP, "--no-build-isolation", "-e", ROOT, cwd=folder)
    return python


@pytest.fixture(params=["wheel", "editable"])
def python(request: pytest.FixtureRequest) -> Path:
    interpreter: Path = request.getfixturevalue(request.param)
    return interpreter


def test_wheel_ships_one_name_and_every_file_of_the_packages(built: Path) -> None:
    """An ignore pattern that is too broad drops files from the wheel silently."""
    names = ZipFile(built).namelist()
    assert len({*names}) == len(names)
    (metadata,) = {name.partition("/")[0] for name in names} - {"syncverify"}
    assert metadata.endswith(".dist-info")
    places = {name: f"syncverify/{name}" for name in MINE} | {
        "syncverify": "syncverify"
    }
    sources = {
        f"{place}/{file.relative_to(ROOT / package).as_posix()}"
        for package, place in places.items()
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert sources - {*names} == set()


def test_installed_command_writes_the_recipes(wheel: Path, tmp_path: Path) -> None:
    """Templates are data, which an import would not miss."""
    command = ("-m", "syncverify", "init", "mine", "--like", "hooks")
    assert "next: pytest mine" in run(wheel, *command, cwd=tmp_path)
    assert (tmp_path / "mine" / "my_subject.py").is_file()


def write_mine(folder: Path) -> Path:
    """Write packages of a user, whose modules have names of ours."""
    for name in MINE:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("MINE = True\n")
        for module in ("scenarios", "hooks"):
            (package / f"{module}.py").write_text("MINE = True\n")
    return folder


BOTH = """
import strategies, synchronizer
import strategies.scenarios, synchronizer.hooks
import syncverify
from syncverify.strategies.scenarios import scenarios
from syncverify.subjects.subject import resolve
assert strategies.MINE and strategies.scenarios.MINE
assert synchronizer.MINE and synchronizer.hooks.MINE
_, ours, *_ = resolve("synchronizer").factory.__mro__
assert ours.__module__.startswith("syncverify.synchronizer")
"""


@pytest.mark.parametrize("has_init", [True, False])
def test_packages_in_the_working_directory(
    python: Path, tmp_path: Path, *, has_init: bool
) -> None:
    folder, script = write_mine(tmp_path), BOTH
    if not has_init:
        for name in MINE:
            (folder / name / "__init__.py").unlink()
            script = script.replace(f"{name}.MINE and ", "")
    run(python, "-c", script, cwd=folder)


@pytest.fixture
def installed(python: Path, tmp_path: Path) -> Iterator[Path]:
    """Packages of a user in `mine`, installed as editable ones, whose line comes last."""
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    line = packages / "zzz_project.pth"
    line.write_text(str(write_mine(tmp_path / "mine")))
    yield tmp_path
    line.unlink()


@pytest.mark.nightly
def test_packages_that_are_installed(python: Path, installed: Path) -> None:
    run(python, "-c", BOTH, cwd=installed)


FOUND = """
from importlib.util import find_spec
for name in {names}:
    if find_spec(name):
        print(name)
assert find_spec("syncverify.strategies") and find_spec("syncverify.synchronizer")
"""


def test_the_path_holds_one_name(python: Path, tmp_path: Path) -> None:
    folders = (ROOT, ROOT / "studies", ROOT / "tests")
    names = {path.stem for folder in folders for path in folder.iterdir()}
    # A package is named build, and each folder of modules may hold a cache.
    names = {*filter(str.isidentifier, names)} - {"build", "__pycache__"}
    script = FOUND.format(names=sorted(names))
    assert run(python, "-c", script, cwd=tmp_path) == "syncverify\n"


def test_short_name_in_a_checkout_names_the_long_one() -> None:
    for name in MINE:
        script = (
            f"try:\n    import {name}\nexcept ImportError as error:\n    print(error)"
        )
        assert run(sys.executable, "-c", script, cwd=ROOT) == (
            f"expected the name 'syncverify.{name}', got '{name}', the folder of a checkout at "
            f"{ROOT / name / '__init__.py'}; import syncverify.{name}\n"
        )


@pytest.mark.parametrize(
    ("subject", "where"),
    [
        ("mysync.py:Mine", ("--backend", "gloo")),
        pytest.param(
            "synchronizer", ("--backend", "streams"), marks=pytest.mark.nightly
        ),
        ("ddp", ("--jobs", "2")),
        ("synchronizer", ("--cluster", "local:1")),
    ],
)
def test_processes_import_the_installed_package_in_a_folder_with_another(
    wheel: Path, tmp_path: Path, subject: str, where: tuple[str, str]
) -> None:
    """As in a checkout; the folder has a name of a package that we require, too."""
    write_mine(tmp_path)
    for name in ("syncverify", "psutil"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("1 / 0\n")
    (tmp_path / "mysync.py").write_text(
        "import synchronizer\n"
        "from syncverify.synchronizer import GradientSynchronizer\n"
        "assert synchronizer.MINE\n"
        "class Mine(GradientSynchronizer): ...\n"
    )
    play = ("run", subject, "--examples=2", "--no-beyond", "--ranks=1", "--seed=0")
    shown = run(wheel.parent / "syncverify", *play, *where, cwd=tmp_path)
    assert "held all properties" in shown
