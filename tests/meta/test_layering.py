"""Imports point one way, files stay small, private torch stays in one place.

The picture is in ARCHITECTURE.md. Below it is a table; loosen the table only together
with the picture. A string such as "synchronizer:GradientSynchronizer" is data, not an
import, and is nobody's business here.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "synchronizer",
    "syncverify",
    "strategies",
    "benchmarks",
    "mutants",
    "peers",
    "comparison",
)
MAX_LINES = 400

# typing_extensions brings to 3.11 what `typing` has later, and torch requires it anyhow.
STANDARD = sys.stdlib_module_names | {"typing_extensions"}
CORE = {"syncverify", "torch"}
FACE = CORE | {"strategies"}
MEASURED = {"benchmarks", "synchronizer", "torch"}
HARNESS = {"benchmarks", "syncverify", "torch"}
# Who may import which top-level names beside the standard library. The longest matching
# path wins.
MAY_IMPORT = {
    "synchronizer/": {"synchronizer", "torch"},
    "strategies/": {"strategies", "syncverify", "torch", "hypothesis"},
    "syncverify/": CORE,
    "syncverify/backends/": CORE | {"cloudpickle"},
    "syncverify/report/": CORE | {"rich", "jinja2"},
    "syncverify/subjects/": CORE | {"d9d", "deepspeed", "megatron"},
    "syncverify/__main__.py": FACE,
    "syncverify/cli.py": FACE | {"click", "rich"},
    "syncverify/command_line.py": {"click"},
    "syncverify/verification.py": FACE,
    "syncverify/bank_command/": FACE,
    "syncverify/bank_command/command.py": FACE | {"click", "rich"},
    "syncverify/bank_command/table.py": FACE | {"rich"},
    "syncverify/graphs/cpp.py": {"syncverify", "torch", "filelock"},
    "peers/": {"peers", "syncverify", "torch"},
    "peers/__main__.py": {"peers", "syncverify", "torch", "click", "rich"},
    "comparison/": {"comparison"} | FACE,
    "comparison/__main__.py": {"comparison", "click"} | FACE,
    "benchmarks/": {"benchmarks", "torch"},
    "benchmarks/command.py": {"benchmarks", "syncverify", "click"},
    "benchmarks/report.py": {"benchmarks", "torch", "rich"},
    "benchmarks/harness/": HARNESS,
    "benchmarks/harness/__main__.py": HARNESS | {"click", "rich"},
    "benchmarks/synchronizer/": MEASURED,
    "benchmarks/synchronizer/__main__.py": MEASURED | {"click", "rich"},
    # Not the synchronizer: what is imported is a mutant of it, by name, and elsewhere.
    "mutants/": {"mutants", "syncverify", "pytest"},
    "mutants/results.py": {"mutants", "rich"},
    "mutants/__main__.py": {"mutants", "syncverify", "click", "rich"},
}
# The faces see strategies, so only faces may see a face: anything else would close a cycle.
FACES = {f"syncverify.{name}" for name in ("__main__", "cli", "verification")}
FACES |= {
    f"syncverify.bank_command.{name}"
    for name in ("command", "jobs", "play", "table", "worker")
}
FACES |= {"peers.__main__", "peers.played"}
FACES |= {"comparison.__main__", "comparison.smallest"}
# ... or a command that nobody imports ...
ABOVE_FACES = "mutants/"
# ... and except that `syncverify.verify` is resolved on first use, inside a function, and
# announced to type checkers.
LAZY_FACE = ("syncverify/__init__.py", "syncverify.verification")
# Running and judging are apart.
NEVER = {
    "syncverify/properties/": "syncverify.backends",
    "syncverify/ordering/": "syncverify.sim",
    "syncverify/backends/": "syncverify.properties",
}
# Each of these may change in any torch release: one module a package to repair, no more.
PRIVATE_TORCH = ("torch.testing._internal", "torch._C")
JUNK_DRAWERS = {"util", "utils"}


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def imports(tree: ast.Module, path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Yield every imported dotted name, made absolute: `from a import b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            base = path.parts[: -node.level] if node.level else ()
            module = [*base, *([node.module] if node.module else [])]
            for alias in node.names:
                yield ".".join([*module, alias.name]), node


def statements_not_run_on_import(tree: ast.Module) -> set[ast.AST]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    outer = [node for node in ast.walk(tree) if isinstance(node, functions)]
    outer += [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {inner for function in outer for inner in ast.walk(function)}


def problems_of_file(path: Path, tree: ast.Module) -> Iterator[str]:
    place = path.as_posix()
    allowed = MAY_IMPORT[max(filter(place.startswith, MAY_IMPORT), key=len)]
    is_face = ".".join(path.with_suffix("").parts) in FACES
    is_face |= place.startswith(ABOVE_FACES)
    lazy = statements_not_run_on_import(tree)
    for name, node in imports(tree, path):
        where = f"{place}:{node.lineno}:"
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            yield f"{where} relative import of a parent; spell out {name}"
        if (top := name.partition(".")[0]) not in allowed | STANDARD:
            yield f"{where} imports {top}; allowed here: {', '.join(sorted(allowed))}"
        for face in (face for face in FACES if within(name, face) and not is_face):
            if (place, face) != LAZY_FACE:
                yield f"{where} imports {face}, which only a face may"
            elif node not in lazy:
                yield f"{where} imports {face} outside a function"
        for folder, other in NEVER.items():
            if place.startswith(folder) and within(name, other):
                yield f"{where} imports {other}; running and judging are apart"


def private_torch(tree: ast.Module, path: Path) -> set[str]:
    """Return the private parts of torch that a module imports or reaches by attribute."""
    names = [name for name, _ in imports(tree, path)]
    names += [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    return {part for part in PRIVATE_TORCH for name in names if within(name, part)}


def problems(root: Path) -> list[str]:
    found: list[str] = []
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in sorted(file for p in PACKAGES for file in (root / p).rglob("*.py")):
        path = file.relative_to(root)
        tree = ast.parse(file.read_text())
        found += problems_of_file(path, tree)
        for part in private_torch(tree, path):
            users[part, path.parts[0]].append(path.as_posix())
        if JUNK_DRAWERS & {*path.with_suffix("").parts}:
            found.append(f"{path.as_posix()}: name the concept, not 'utils'")
    for (part, _), modules in users.items():
        if len(modules) > 1:
            found.append(f"{part} is used in {' and '.join(modules)}; keep it in one")
    for file in sorted(
        f for p in (*PACKAGES, "tests") for f in (root / p).rglob("*.py")
    ):
        if (lines := len(file.read_text().splitlines())) > MAX_LINES:
            place = file.relative_to(root).as_posix()
            found.append(f"{place}: {lines} lines, over {MAX_LINES}; split it by idea")
    return found


def test_layers_hold() -> None:
    assert problems(ROOT) == []


def test_every_package_and_face_is_where_the_table_says() -> None:
    """A table that names paths nobody has checks nothing."""
    assert [entry for entry in MAY_IMPORT if not (ROOT / entry).exists()] == []


BAD = {
    "harness in subject": (
        "synchronizer/a.py",
        "import syncverify",
        "imports syncverify",
    ),
    "subject in harness": ("syncverify/a.py", "import synchronizer", "imports synchro"),
    "subject, lazily": (
        "syncverify/sim/a.py",
        "def f():\n    from synchronizer import errors",
        "syncverify/sim/a.py:2: imports synchronizer",
    ),
    "hypothesis in core": (
        "syncverify/properties/a.py",
        "from hypothesis import strategies",
        "imports hypothesis",
    ),
    "strategies, for types": (
        "syncverify/oracle.py",
        "if TYPE_CHECKING:\n    from strategies import scenarios",
        "imports strategies",
    ),
    "subject in strategies": ("strategies/a.py", "import synchronizer", "synchronizer"),
    "rich outside report": ("syncverify/sim/a.py", "import rich.table", "imports rich"),
    "harness in a benchmark of its subject": (
        "benchmarks/synchronizer/a.py",
        "import syncverify",
        "imports syncverify",
    ),
    "undeclared": ("strategies/a.py", "import pandas", "imports pandas"),
    "face in strategies": (
        "strategies/a.py",
        "from syncverify import cli",
        "a face may",
    ),
    "face in core": ("syncverify/a.py", "from .cli import main", "a face may"),
    "face, eagerly": (
        "syncverify/__init__.py",
        "from .verification import verify",
        "outside a function",
    ),
    "judge knows backend": (
        "syncverify/properties/a.py",
        "from syncverify.backends import sim",
        "judging",
    ),
    "backend knows judge": (
        "syncverify/backends/a.py",
        "import syncverify.properties.values",
        "judging",
    ),
    "subject of mutants": ("mutants/a.py", "import synchronizer", "synchronizer"),
    "parent": ("syncverify/sim/a.py", "from ..trace import Trace", "syncverify.trace"),
    "junk drawer": ("synchronizer/utils.py", "", "name the concept"),
    "too long": ("strategies/a.py", "pass\n" * 401, "401 lines"),
}


def write(root: Path, place: str, source: str) -> None:
    file = root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)


@pytest.mark.parametrize(("place", "source", "expected"), BAD.values(), ids=BAD.keys())
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
    assert problems(tmp_path) == []
    write(tmp_path, "syncverify/sim/b.py", sources[1])
    (found,) = problems(tmp_path)
    assert found == (
        f"{part} is used in syncverify/a.py and syncverify/sim/b.py; keep it in one"
    )


def test_each_package_may_have_its_own_module_for_private_torch(tmp_path: Path) -> None:
    for place in ("syncverify/a.py", "synchronizer/a.py"):
        write(tmp_path, place, "import torch\ntorch._C.f()")
    assert problems(tmp_path) == []


GOOD = {
    "synchronizer/a.py": "import torch.distributed as dist\nfrom .errors import E",
    "strategies/a.py": "from hypothesis import strategies as st\nimport syncverify",
    "syncverify/__init__.py": (
        "from .scenario import Scenario\n"
        "def __getattr__(name):\n    from .verification import verify\n    return verify"
    ),
    "syncverify/report/text.py": "import rich\nfrom syncverify.trace import Trace",
    "syncverify/cli.py": "import click\nfrom syncverify.verification import verify",
    "mutants/trial.py": "from syncverify.verification import run_search",
    "syncverify/verification.py": "import strategies\nsubject = 'synchronizer:S'",
    "syncverify/subjects/megatron.py": "def adapt():\n    import megatron.core",
}


def test_clean_tree_is_silent(tmp_path: Path) -> None:
    for place, source in GOOD.items():
        write(tmp_path, place, source)
    assert problems(tmp_path) == []


@pytest.mark.slow
def test_importing_syncverify_loads_no_strategies() -> None:
    """What the table says about text, seen at run time; and nothing warns."""
    loaded = subprocess.run(
        [
            sys.executable, "-W", "error", "-c",
            "import sys, syncverify; print(*sorted(sys.modules))",
        ],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "syncverify" in loaded
    assert {"hypothesis", "strategies", "synchronizer"} & {*loaded} == set()
