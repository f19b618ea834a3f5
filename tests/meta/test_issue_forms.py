"""Issue forms are valid: GitHub drops a broken form and reports nothing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / ".github" / "ISSUE_TEMPLATE"
FORMS = sorted(set(FOLDER.glob("*.yml")) - {FOLDER / "config.yml"})
INPUTS = {"input", "textarea", "dropdown", "checkboxes"}


def problems(form: dict[str, Any]) -> list[str]:
    """List the rules of GitHub's form syntax that a form breaks."""
    found = [key for key in ("name", "description", "body") if not form.get(key)]
    fields = [each for each in form.get("body", []) if each["type"] != "markdown"]
    found += [each["type"] for each in fields if each["type"] not in INPUTS]
    labels = [each["attributes"].get("label") for each in fields]
    ids = [each["id"] for each in fields]
    if not all(labels):
        found.append("a field without a label")
    for kind, names in (("label", labels), ("id", ids)):
        found += [
            f"{kind} {name!r} twice" for name in {*names} if names.count(name) > 1
        ]
    return found


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_form_is_valid(path: Path) -> None:
    assert problems(yaml.safe_load(path.read_text())) == []


def test_planted_mistakes_are_found() -> None:
    field = {"type": "input", "id": "a", "attributes": {"label": "A"}}
    form = {"name": "n", "description": "d", "body": [field]}
    assert problems(form) == []
    assert problems(form | {"name": ""}) == ["name"]
    assert problems(form | {"body": [field | {"type": "text"}]}) == ["text"]
    twice = problems(form | {"body": [field, field]})
    assert twice == ["label 'A' twice", "id 'a' twice"]
