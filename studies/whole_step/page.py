"""The table of recipes, from stored results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from studies.documents import RESULTS, ROOT, Document, table

EXAMPLES: Final = ROOT / "examples" / "parity"
RESULTS_FILE: Final = RESULTS / "parity_examples.json"


def page() -> str:
    """Return the table of recipes."""
    stored: dict[str, dict[str, Any]] = json.loads(RESULTS_FILE.read_text())
    head = ("file", "what", "lines", "layouts", "right", "largest difference", "CPU s")
    return "\n".join(table(head, (_row(*pair) for pair in sorted(stored.items()))))


def _row(name: str, result: dict[str, Any]) -> Iterator[str]:
    text = (EXAMPLES / f"{name}.py").read_text("utf-8")
    yield f"`{name}.py`"
    yield text.split('"""')[1].splitlines()[0].split(" Compare with")[0]
    yield str(len(text.splitlines()))
    if missing := result.get("missing"):
        yield from (f"not played: `{missing}` is missing", "", "", "")
        return
    layouts = result["layouts"]
    yield "; ".join(layouts) if len(layouts) < 4 else f"{len(layouts)} layouts"
    yield f"{result['right']} of {len(layouts)}"
    yield f"{result['worst']:.0e}"
    yield str(result["cpu_seconds"])


PAGE: Final = Document("docs/whole-step-recipes.md", page, "recipes")
