"""Calls in the source of a subject that synchronize, by their names, whether they run or not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from typing import Final

from syncverify.explain.repair.source_edit import Source, source_of
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
# Words in the receiver of a `wait()`, or in its annotation, that tell a handle of torch from
# other objects.
_HANDLES: Final = ("work", "handle", "future", "event")


def calls_in(
    factory: Callable[..., object], files: Collection[str]
) -> Iterator[SyncPoint]:
    """Yield the calls in the modules of a subject, and in files where one ran."""
    own = {getattr(module, "__file__", None) for module in modules_of(factory)}
    for source in map(source_of, sorted({*filter(None, own), *files})):
        if source is not None:
            yield from _calls_of(source)


def _calls_of(source: Source) -> Iterator[SyncPoint]:
    handles = {*_HANDLES, *_annotated(source.tree)}
    found = dict[int, SyncPoint]()
    for function in source.functions:  # an inner one comes after those around it
        for node in ast.walk(function):
            kind = _kind(node, handles)
            if kind is not None and isinstance(node, ast.Call):
                line = SourceLine(shown_path(source.path), node.lineno, function.name)
                found[node.lineno] = SyncPoint(kind, line)
    yield from found.values()


def _annotated(tree: ast.AST) -> Iterator[str]:
    """Yield the names of attributes and variables whose annotation is a handle."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(
                target=(ast.Name(id=name) | ast.Attribute(attr=name)), annotation=kind
            ) if _names_one(ast.unparse(kind), _HANDLES):
                yield name.lower()


def _kind(node: ast.AST, handles: Collection[str]) -> PointKind | None:
    """Return the kind of a call that synchronizes; None for all else."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _KINDS:
            return _KINDS[name]
        case ast.Call(func=ast.Attribute(attr="wait", value=receiver)):
            return "work_wait" if _names_one(ast.unparse(receiver), handles) else None
    return None


def _names_one(text: str, words: Collection[str]) -> bool:
    return any(word in text.lower() for word in words)
