"""Operators in C++ are compiled before ranks are watched, and only if a run uses them."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from syncverify.backends.sim import SimBackend
from syncverify.program.graphs import cpp
from syncverify.program.graphs.uses import USES
from syncverify.scenario.feature_table import PLAIN
from syncverify.subjects.subject import resolve
from tests.engine_scenarios import scenario_of


def test_words_are_those_that_are_compiled() -> None:
    assert {*cpp.IN_CPP} == {word for word in USES if word.startswith("cpp_")}


@pytest.mark.long
def test_torch_logs_no_missing_gpu_where_nothing_is_compiled() -> None:
    """Its module of extensions does so when imported, beside CUDA without a GPU."""
    code = (
        "import sys; from syncverify.backends import worker; worker.import_dynamo()\n"
        "sys.exit('torch.utils.cpp_extension' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("word", "expected"), [("cpp_kernel", 1), (PLAIN, 0)])
def test_ranks_do_not_compile(
    word: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Thread] = []

    def refuse() -> None:
        asked.append(threading.current_thread())
        raise cpp.NoCompilerError("no compiler in this test")

    monkeypatch.setattr(cpp, "load_operators", refuse)
    subject = resolve("synchronizer")
    if expected:
        with pytest.raises(cpp.NoCompilerError):
            SimBackend().run(scenario_of("use", word), subject)
    else:
        assert SimBackend().run(scenario_of("use", word), subject).fault is None
    assert asked == [threading.main_thread()] * expected


def test_a_build_that_was_killed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folders: list[Path] = []

    def load(*, build_directory: str, **_: object) -> None:
        folders.append(Path(build_directory))
        assert not (folders[0] / "lock").exists()
        (folders[0] / "lock").touch()  # and is killed

    monkeypatch.setattr(cpp_extension, "load", load)
    for _ in range(2):
        cpp.load_operators.__wrapped__()
    assert [folder.parent for folder in folders] == [tmp_path, tmp_path]
