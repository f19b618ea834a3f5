"""Pages that show commands are followed literally, and every shown output is real."""

from pathlib import Path

import pytest

from studies.pages.followed import followed, without_times
from studies.pages.gallery import PAGE, SHOWN, diagnosis_of
from tests.warm_python import page_output

DOCS = Path(__file__).parents[2] / "docs"
FOLLOWED = (
    "index.md",
    "tutorial.md",
    "reading-a-race.md",
    "any-program.md",
    "whole-step.md",
    "scripts.md",
)
# Pages that take half a minute; each day, other tests play the commands that they show.
LONG = ("tutorial.md", "any-program.md")


@pytest.mark.long(10)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name in LONG else ())
        for name in FOLLOWED
    ],
)
def test_page_shows_real_output(name: str, tmp_path: Path) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    shown = followed(text, tmp_path, page_output)
    assert without_times(shown) == without_times(text)


def test_the_layer_that_is_fuzzed_is_an_example() -> None:
    page = (DOCS / "any-program.md").read_text(encoding="utf-8")
    example = (DOCS.parent / "examples" / "fuzz_layer.py").read_text(encoding="utf-8")
    assert f'```python title="fuzz_layer.py"\n{example}```' in page


@pytest.mark.long(5)  # one of the ten, so that no change of reports waits for a night
@pytest.mark.usefixtures("with_fixes")
def test_gallery_shows_a_real_diagnosis() -> None:
    part = diagnosis_of("A wrong factor")
    assert "  fix:        " in part
    assert part in PAGE.file.read_text("utf-8"), "run python -m studies.pages.gallery"


@pytest.mark.nightly  # ten searches, each with its fix
@pytest.mark.usefixtures("with_fixes")
def test_gallery_shows_real_diagnoses() -> None:
    assert len(SHOWN) == 10
    assert PAGE.written() == PAGE.file.read_text(encoding="utf-8"), (
        "run python -m studies.pages.gallery"
    )


PAGE_WITH_STEPS = """\
```python title="count.py"
print(len("abc"))
```
```diff title="count.py"
-print(len("abc"))
+print(len("abcd"))
```
```console
$ python count.py
3
```
"""


def test_following_puts_real_output_into_a_page(tmp_path: Path) -> None:
    text = followed(PAGE_WITH_STEPS, tmp_path)
    assert text == PAGE_WITH_STEPS.replace("\n3\n", "\n4\n")


def test_a_change_of_other_lines_is_refused(tmp_path: Path) -> None:
    broken = PAGE_WITH_STEPS.replace('-print(len("abc"))', '-print(len("x"))')
    with pytest.raises(ValueError, match="expected these lines once"):
        followed(broken, tmp_path)
