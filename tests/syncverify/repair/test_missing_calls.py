"""Forgotten lines, as the text of the file that has them."""

import ast
import textwrap

from syncverify.repair.missing_calls import missing_calls
from syncverify.repair.source_edit import Source

SUBJECT = """
class Bucket:
    def __init__(self, parameters):
        self.parameters = parameters
        self.pending = len(parameters)
        self.buffer = torch.zeros(2)

class Sync:
    def bind(self):
        self.counts = {}
        self.buckets = []
        for p in self.all:
            self.counts[p] = 0

    def count(self, bucket):
        bucket.pending -= 1

    def send(self):
        dist.all_reduce(self.flat)

    def wait(self):
        '''Return when all is done.'''

    def zero_grad(self):
        for bucket in self.buckets:
            pass

    def unbind(self):
        for handle in self.hooks:
            del handle
"""


def added() -> dict[str, list[str]]:
    """Return the new lines by the method that gets them."""
    text = textwrap.dedent(SUBJECT)
    source = Source("a.py", tuple(text.splitlines()), ast.parse(text))
    found: dict[str, list[str]] = {}
    for edit in missing_calls(source):
        ast.parse(source.edited(edit))
        function = source.function_at(max(1, edit.first - 1))
        assert function is not None
        found.setdefault(function.name, []).extend(edit.lines)
    return found


def test_wait_sends_what_was_never_sent() -> None:
    assert "self.send()" in added()["wait"]


def test_a_state_that_changes_is_set_anew() -> None:
    lines = added()["zero_grad"]
    assert "self.counts = {}" in lines
    assert "self.buckets = []" not in lines  # nothing adds to it


def test_a_loop_over_elements_sets_and_clears_them() -> None:
    lines = added()["zero_grad"]
    assert "bucket.pending = len(bucket.parameters)" in lines
    assert "bucket.buffer.zero_()" in lines


def test_handles_are_removed() -> None:
    assert set(added()["unbind"]) == {"handle.remove()"}
