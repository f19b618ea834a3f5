"""Each recipe for a whole step on a mesh is right."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from syncverify import parity

FOLDER = Path(__file__).parents[2] / "examples" / "parity"
# By name of the file: `every_axis` has 18 layouts, which take minutes; one of three axes is played.
FEWER = {"every_axis": ["cp=2,ep=2,tp=2"]}

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # of torch, about slow ways to gather
]


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            file, marks=[pytest.mark.nightly] * (file.stem in FEWER), id=file.stem
        )
        for file in sorted(FOLDER.glob("*.py"))
    ],
)
def test_a_recipe_is_right(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        module = importlib.import_module(f"examples.parity.{file.stem}")
    except ModuleNotFoundError as error:
        pytest.skip(f"{file.name} needs the package {error.name}")
    monkeypatch.setattr(module, "layouts", FEWER.get(file.stem, module.layouts))
    names = inspect.signature(parity).parameters
    result = parity(**{k: each for k, each in vars(module).items() if k in names})
    assert result.is_right, str(result)
    # Two steps of a few parameters have more values than losses alone would have.
    plain = [each.num_values for each in result.plays if each.variation is None]
    assert min(plain) > 20
