"""Imports point one way, private torch stays in one place.

The order of folders is the table `[tool.importlinter]` of pyproject.toml; the picture is in
ARCHITECTURE.md. Change both together. A string such as "syncverify.synchronizer:..." is data,
and no import.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncverify.subjects.built_in import declarations

ROOT = Path(__file__).parents[2]
PACKAGES = ("synchronizer", "syncverify", "strategies")

# typing_extensions brings newer parts of `typing` to 3.11, and torch requires it anyhow.
STANDARD = sys.stdlib_module_names | {"typing_extensions", "torch"}
OWN = {"syncverify", "studies"}  # and no tests: they import both
# Third-party packages that a folder may import; the longest matching path wins.
MAY_IMPORT = {
    "synchronizer/": set(),
    "synchronizer/backward/collector.py": {"filelock"},  # which torch requires
    "strategies/": {"hypothesis"},
    "syncverify/": set(),
    "syncverify/playing/": {"cloudpickle"},
    "syncverify/search/cluster/": {"distributed"},
    "syncverify/command/": {"click", "psutil", "rich"},
    "syncverify/command/hypothesis_plugin.py": {"hypothesis"},
    "syncverify/processes/": {"cloudpickle", "psutil"},
    "syncverify/playing/program/graphs/cpp.py": {"filelock"},
    "syncverify/pytest_plugin.py": {"pytest"},
    "syncverify/report/": {"rich"},
    # Markupsafe is the part of jinja2 that says which text is escaped already.
    "syncverify/report/html/": {"jinja2", "markupsafe"},
    "syncverify/search/": {"hypothesis"},
    "syncverify/search/campaign_file.py": {"filelock"},
    "syncverify/search/line_probe.py": {"slipcover"},
    "syncverify/search/violation_database.py": {"hypothesis", "redis"},
    "syncverify/scenario/settings.py": {"hypothesis"},  # for types alone
    "syncverify/subjects/": set(),  # and the `PACKAGE` of each module
    "syncverify/faces/whole_step/input_checks.py": {"psutil"},
    "studies/": {"click", "pytest", "rich"},
    "studies/gpu/": {"click", "hypothesis"},
    "studies/kills/": {"click", "psutil"},
    "studies/mutants/": {"click", "mutmut", "pytest"},
    "studies/releases/": {"click", "packaging"},
    "studies/timemachine/releases.py": {"click", "filelock"},
    "studies/timemachine/programs/": {"deepspeed", "megatron", "numpy"},
    "studies/pages/": {"click", "hypothesis", "packaging"},
}
# Each of these may change in any torch release: one module a package to repair, no more.
# torch's machinery of tests has modules of its own, each with one user.
# The number says how many names make such a part.
PRIVATE_TORCH = {"torch.testing._internal": 4, "torch._C": 2}


TABLE = "tests/meta/test_layering.py"
SUBJECTS = "syncverify/subjects/"


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def imports(tree: ast.Module) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    """Yield each absolute import, as a dotted name: `from a import b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node


def adapted(file: Path) -> set[str]:
    """Return the modules that the `PACKAGE` of a subject may have: parts of the package's name."""
    words = declarations(file).get("PACKAGE", "").replace("-", "_").split("_")
    return {"_".join(words[:count]) for count in range(1, len(words) + 1)}


def problems_of_file(file: Path, tree: ast.Module, place: str) -> Iterator[str]:
    folder = max(filter(place.startswith, MAY_IMPORT), key=len)
    allowed, where = MAY_IMPORT[folder], f"MAY_IMPORT[{folder!r}] of {TABLE}"
    if folder == SUBJECTS:
        allowed, where = allowed | adapted(file), f"{where}, or PACKAGE of the module"
    for name, node in imports(tree):
        top = name.partition(".")[0]
        if top not in allowed | STANDARD | OWN:
            found = f"{place}:{node.lineno}: imports {top}"
            yield f"{found}; allowed here: {sorted(allowed)}, by {where}"
    if {"util", "utils"} & {*Path(place).with_suffix("").parts}:
        yield f"{place}: name the concept, not 'utils'"


def private_torch(tree: ast.Module) -> set[str]:
    """Return the private parts of torch that a module imports or reaches by attribute."""
    names = [name for name, _ in imports(tree)]
    names += [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    return {
        ".".join(name.split(".")[:count])
        for part, count in PRIVATE_TORCH.items()
        for name in names
        if within(name, part)
    }


def problems(root: Path) -> list[str]:
    found: list[str] = []
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    folders = (*PACKAGES, "studies")
    for file in sorted(file for f in folders for file in (root / f).rglob("*.py")):
        place, source = file.relative_to(root).as_posix(), file.read_text()
        tree = ast.parse(source)
        found += problems_of_file(file, tree, place)
        package = place.removeprefix("studies/").partition("/")[0]
        if any(part.rpartition(".")[2] in source for part in PRIVATE_TORCH):
            for part in private_torch(tree):
                users[part, package].append(place)
    for (part, _), modules in users.items():
        if len(modules) > 1:
            found.append(f"{part} is used in {' and '.join(modules)}; keep it in one")
    return found


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Hold the imports of a checkout against the table of pyproject.toml."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config"]
    return subprocess.run(
        [*command, ROOT / "pyproject.toml"], cwd=root, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip


@pytest.mark.long
def test_each_file_imports_what_its_folder_may() -> None:
    assert problems(ROOT) == []


def test_table_names_what_exists() -> None:
    assert [entry for entry in MAY_IMPORT if not (ROOT / entry).exists()] == []


@pytest.mark.long
def test_imports_follow_the_table_of_folders() -> None:
    linted = lint_imports(ROOT)
    assert linted.returncode == 0, linted.stdout


# File, module that it imports, contract that breaks, and the line that says where.
TURNED_AROUND = {
    "for types: settings know the search": (
        "syncverify/scenario/settings.py", "syncverify.search.result", "folders",
        "syncverify.scenario.settings -> syncverify.search.result",
    ),
    "two files know each other": (
        "strategies/weights.py", "syncverify.strategies.shapes",
        "no cycle, of folders or of files", ".weights -> .shapes",
    ),
    "studies know tests": (
        "studies/rows.py", "tests.programs", "tests are above all", "studies.rows -> tests",
    ),
    "subject knows its harness": (
        "synchronizer/errors.py", "syncverify.scenario",
        "a subject does not know its harness",
        "syncverify.synchronizer.errors -> syncverify.scenario",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def broken_contracts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Complaints by contract about one checkout with every import of TURNED_AROUND."""
    root = tmp_path_factory.mktemp("turned_around")
    for folder in (*PACKAGES, "studies"):
        shutil.copytree(
            ROOT / folder,
            root / folder,
            ignore=shutil.ignore_patterns("__pycache__"),
            symlinks=True,  # two of `syncverify/` lead to the other folders
        )
    for case, (place, name, *_) in TURNED_AROUND.items():
        block = "if TYPE_CHECKING" if case.startswith("for types") else "def planted()"
        with (root / place).open("a") as file:
            file.write(f"\n\n{block}:\n    import {name}\n")
    linted = lint_imports(root)
    assert linted.returncode == 1
    _, *rest = re.split(r"\n(.+)\n-+\n", linted.stdout.partition("Broken")[2])
    return dict(zip(rest[::2], rest[1::2], strict=True))


@pytest.mark.long
@pytest.mark.parametrize(
    ("contract", "complaint"),
    [case[2:] for case in TURNED_AROUND.values()],
    ids=TURNED_AROUND,
)
def test_import_turned_around_is_found(
    broken_contracts: dict[str, str], contract: str, complaint: str
) -> None:
    assert f"{complaint} (" in broken_contracts[contract]


BAD = {
    "hypothesis in core": (
        "syncverify/judge/a.py",
        "from hypothesis import strategies",
        "syncverify/judge/a.py:1: imports hypothesis",
    ),
    "rich in a function": (
        "syncverify/sim/a.py", "def f():\n    import rich.table", "a.py:2: imports rich",
    ),
    "short name": (
        "syncverify/a.py", "from strategies import scenarios", "imports strategies",
    ),
    "undeclared": (
        "strategies/a.py", "import pandas",
        "allowed here: ['hypothesis'], by MAY_IMPORT['strategies/'] of tests/meta/test_layering.py",
    ),
    "subject of another package": (
        "syncverify/subjects/a.py",
        "SUBJECTS = {'a': 'A'}\nPACKAGE: Final = 'other-core'\nimport other, others",
        "a.py:3: imports others; allowed here: ['other', 'other_core'], by MAY_IMPORT",
    ),
    "junk drawer": ("synchronizer/utils.py", "", "name the concept"),
}  # fmt: skip


def write(root: Path, place: str, source: str) -> None:
    file = root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)


@pytest.mark.parametrize(("place", "source", "expected"), BAD.values(), ids=BAD)
def test_planted_mistake_is_found(
    tmp_path: Path, place: str, source: str, expected: str
) -> None:
    write(tmp_path, place, source)
    (found,) = problems(tmp_path)
    assert found.startswith(place)
    assert expected in found


@pytest.mark.parametrize(
    ("part", "sources"),
    [
        ("torch._C", ("from torch import _C", "import torch\ntorch._C.f()")),
        ("torch._C", ("import torch._C._distributed_c10d", "from torch._C import a")),
        ("torch.testing._internal", ("import torch.testing._internal as t",) * 2),
    ],
)
def test_private_torch_in_two_modules_is_found(
    tmp_path: Path, part: str, sources: tuple[str, str]
) -> None:
    write(tmp_path, "syncverify/a.py", sources[0])
    write(tmp_path, "synchronizer/a.py", sources[0])
    assert problems(tmp_path) == []
    write(tmp_path, "syncverify/sim/b.py", sources[1])
    (found,) = problems(tmp_path)
    assert found == (
        f"{part} is used in syncverify/a.py and syncverify/sim/b.py; keep it in one"
    )


def test_no_module_hides_one_of_the_standard_library() -> None:
    """Python that starts in a folder imports the modules of that folder first."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    assert {file.stem for file in files} & sys.stdlib_module_names == set()
