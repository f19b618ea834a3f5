"""The table of the waits of built-in subjects, from the stored results."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from studies.documents import RESULTS, Document, table
from studies.waits.playing import points_of, stored_rows
from syncverify.judge.ordering.kept_references import KIND as REFERENCE
from syncverify.waits.answers import NEED_WORDS

_FILE: Final = RESULTS / "waits.json"
_HEAD: Final = (
    *("subjects", "scenarios", *NEED_WORDS),
    *("calls that never ran", "kept references", "check"),
)


def read() -> dict[str, Any]:
    """Return the stored result of each row, by its name."""
    stored: dict[str, Any] = (
        json.loads(_FILE.read_text("utf-8")) if _FILE.exists() else {}
    )
    return stored


def write(stored: Mapping[str, Any]) -> None:
    """Store the results of the rows."""
    text = json.dumps(dict(sorted(stored.items())), indent=1)
    _FILE.write_text(f"{text}\n", encoding="utf-8")


def page() -> str:
    """Return the table, with the bound of each row, and the superfluous calls."""
    stored = [result for _, result in stored_rows(read())]
    lines = [*table(_HEAD, map(_cells, stored)), ""]
    lines += [f"- `{each['command']}`" for each in stored]
    head = ("superfluous", "code", "us", "rows")
    extra = [*table(head, _superfluous(stored))]
    return "\n".join([*lines, "", *extra])


def _cells(result: Mapping[str, Any]) -> Iterator[str]:
    played, waits = result["subjects"], result["waits"]
    yield ", ".join(f"`{each['name']}`" for each in played)
    in_scope, drawn, wrong = (
        sum(map(number, played)) for number in (_in_scope, _num_drawn, _num_wrong)
    )
    left_out = f", {wrong:,} left out" if wrong else ""
    yield f"{in_scope:,} of the scope, {drawn:,} drawn{left_out}"
    ran = [each for each in waits if each["scenarios"]]
    calls = Counter(each["word"] for each in ran if each["kind"] != REFERENCE)
    kept = Counter(each["word"] for each in ran if each["kind"] == REFERENCE)
    yield from (str(calls[word]) for word in NEED_WORDS)
    yield str(len(waits) - len(ran))
    yield ", ".join(f"{kept[word]} {word}" for word in NEED_WORDS if kept[word])
    yield _checked(result)


def _in_scope(played: Mapping[str, Any]) -> int:
    return int(played["scenarios"])


def _num_wrong(played: Mapping[str, Any]) -> int:
    return int(played["wrong"])


def _num_drawn(played: Mapping[str, Any]) -> int:
    return int(played["drawn"])


def _checked(result: Mapping[str, Any]) -> str:
    check = result["check"]
    if not points_of(result):
        return "nothing to check"
    return (
        f"{len(check['broken'])} wrong in {check['scenarios']:,} scenarios, "
        f"{check['plays']:,} plays"
    )


def _superfluous(stored: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield each superfluous call once, with the most time, and the rows that list it."""
    rows = defaultdict[tuple[str, str], dict[str, float]](dict)
    for result in stored:
        for each in result["waits"]:
            if each["word"] == "superfluous" and each["kind"] != REFERENCE:
                place = each["path"].rpartition("site-packages/")[2]
                call = f"`{place}:{each['line']}`", f"`{each['code']}`"
                name = f"`{result['subjects'][0]['name']}`"
                rows[call][name] = each["exposed_microseconds"]
    for (line, code), times in rows.items():
        yield line, code, f"{max(times.values()):g}", ", ".join(times)


PART: Final = Document("docs/waits.md", page, "waits of built-in subjects")
