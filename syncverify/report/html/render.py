"""The page as text: the template filled with an account, and with the drawings of its pictures.

Subjects are hostile: their names, errors and source lines reach the page. The template escapes
text, and the model inside of the page has no character that could end its element.
"""

import functools
import json
from collections.abc import Mapping
from importlib import metadata, resources
from itertools import zip_longest
from typing import Any, Final

import jinja2
from markupsafe import Markup

from syncverify.report.account import Account

_FOLDER: Final = resources.files(__package__)
_SCRIPTS: Final = ("drawing.js", "timeline.js", "graph.js", "pictures.js")
# JSON as it may stand in an element `script`: these characters occur in its texts alone.
_ESCAPES: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
_WORDS: Final = {True: "right", False: "wrong", None: "open"}


def rendered(account: Account, drawn: Mapping[str, Any]) -> str:
    """Return the page of an account, with the plain values of its tables and pictures."""
    values = json.dumps(drawn, allow_nan=False, separators=(",", ":"))
    return _template().render(
        account=account,
        word=_WORDS[account.is_right],
        drawn=drawn,
        sections=zip_longest(account.explanations, drawn["violations"], fillvalue={}),
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
