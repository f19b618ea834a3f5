"""Calls in the source of a subject that synchronize, by their names, whether they run or not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from syncverify.search.line_probe import modules_of
from syncverify.trace.source_lines import SourceLine, shown_path
from syncverify.trace.sync_points import PointKind, SyncPoint

_KINDS: Final[dict[str, PointKind]] = {
    "wait_stream": "stream_wait",
    "wait_event": "stream_wait",
    "record_event": "event",
    "synchronize": "host_wait",
    "record_stream": "record_stream",
    "barrier": "barrier",
}
# Names in the receiver of a `wait()` that tell a handle of torch from other objects.
_HANDLES: Final = ("work", "handle", "future", "event")


def calls_in(
    factory: Callable[..., object], files: Collection[str]
) -> Iterator[SyncPoint]:
    """Yield the calls in the modules of a subject, and in files where one ran."""
    own = {getattr(module, "__file__", None) for module in modules_of(factory)}
    for path in sorted({*filter(None, own), *files}):
        if Path(path).is_file():
            yield from _calls_of(path)


def _calls_of(path: str) -> Iterator[SyncPoint]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = dict[int, SyncPoint]()
    for function in functions:  # an inner one comes after those around it
        for node in ast.walk(function):
            kind = _kind(node)
            if kind is not None and isinstance(node, ast.Call):
                line = SourceLine(shown_path(path), node.lineno, function.name)
                found[node.lineno] = SyncPoint(kind, line)
    yield from found.values()


def _kind(node: ast.AST) -> PointKind | None:
    """Return the kind of a call that synchronizes; None for all else."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _KINDS:
            return _KINDS[name]
        case ast.Call(func=ast.Attribute(attr="wait", value=receiver)):
            text = ast.unparse(receiver).lower()
            return "work_wait" if any(word in text for word in _HANDLES) else None
    return None
