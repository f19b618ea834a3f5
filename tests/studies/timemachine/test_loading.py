"""A file of a release is loaded without the packages above it."""

from pathlib import Path

import pytest

from studies.timemachine.programs.loading import file_of


def test_a_file_is_loaded_without_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "made_release" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("raise ImportError('a kernel is missing')")
    (inner / "part.py").write_text(
        "import dataclasses\n\n\n@dataclasses.dataclass\nclass Part:\n    number: int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert file_of("made_release", "inner/part.py").Part(3).number == 3
