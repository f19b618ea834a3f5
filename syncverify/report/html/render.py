"""The page as text: the template filled with a model, and with the drawings that read it.

Subjects are hostile: their names, errors and source lines reach the page. The template escapes
text, and the model inside of the page has no character that could end its element.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import metadata, resources
from typing import Any, Final

import jinja2
from markupsafe import Markup

_FOLDER: Final = resources.files(__package__)
_SCRIPTS: Final = ("drawing.js", "timeline.js", "graph.js", "pictures.js")
# JSON as it may stand in an element `script`: these characters occur in its texts alone.
_ESCAPES: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
# The parts that a page, and a section of it, may lack; a model names those that it has.
_PAGE: Final = ("remarks", "timeline", "explored", "layouts", "waits")
_SECTION: Final = ("is_values", "timeline", "gradients", "witness", "graph", "program")


def rendered(model: Mapping[str, Any]) -> str:
    """Return the page of a model as one self-contained document."""
    sections = [dict.fromkeys(_SECTION) | each for each in model["violations"]]
    page = {**dict.fromkeys(_PAGE), **model, "violations": sections}
    values = json.dumps(model, allow_nan=False, separators=(",", ":"))
    return _template().render(
        page=page,
        model=Markup(values.translate(_ESCAPES)),
        style=Markup(_read("page.css")),
        script=Markup("\n".join(map(_read, _SCRIPTS))),
        version=metadata.version("syncverify"),
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["feature_class"] = _feature_class
    return environment.from_string(_read("page.html.jinja"))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _feature_class(feature: Mapping[str, Any]) -> str:
    """Return the class of a feature in the table of the contract."""
    if feature["word"] in {"wrong", "hangs", "unclear"}:
        return "wrong"
    if feature["promise"] in {"beyond the contract", "left out"}:
        return "beyond"
    return "right" if feature["scenarios"] else "never"
