"""Messages that a program tells apart by their tags, which NCCL does not look at.

NCCL pairs the messages from one rank to another by their order alone. Where the receiver takes them
in an order of its own, by tag, each receive gets another message. A program may mean that, so it
is a remark.

Source:
    `ProcessGroupNCCL::send` and `recv` in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, which
    leave their argument `tag` unused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncverify.judge.traced import launches_of
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Run
from syncverify.trace.source_lines import Origin


@dataclass(frozen=True, slots=True)
class IgnoredTag:
    """A message that meets a receive of another tag.

    Attributes:
        tags: Tag of the message and of its receive.
        ranks: Global ranks of the sender and of the receiver.
        lines: Lines that send and receive; the remark names them.
    """

    tags: tuple[int, int]
    ranks: tuple[int, int]
    lines: tuple[Origin, Origin]

    @property
    def operation(self) -> str:
        """The action of the lines."""
        return "message"


def ignored_tags(run: Run) -> list[IgnoredTag]:
    """Find the messages of a run that came to its end, one for each pair of lines."""
    if run.fault is not None:  # a message may be on its way
        return []
    found = dict[tuple[Origin, Origin], IgnoredTag]()
    for sent, received in _by_pair(run).values():
        for each in _mixed(sent, received):
            found.setdefault(each.lines, each)
    return [*found.values()]


_Messages = tuple[list[CollectiveLaunch], list[CollectiveLaunch]]


def _by_pair(run: Run) -> dict[object, _Messages]:
    """Return the sends and the receives, by communicator and pair of ranks, in their order."""
    found = defaultdict[object, _Messages](lambda: ([], []))
    for rank_run in run.ranks:
        for launch in launches_of(rank_run.trace):
            if launch.operation in POINT_TO_POINT:
                messages = found[launch.communicator, launch.ranks]
                messages[launch.operation == "recv"].append(launch)
    return found


def _mixed(
    sent: Sequence[CollectiveLaunch], received: Sequence[CollectiveLaunch]
) -> Iterator[IgnoredTag]:
    """Yield the first message that meets another tag, if the tags differ in their order alone."""
    tags = [[each.tag for each in side] for side in (sent, received)]
    if tags[0] == tags[1] or Counter(tags[0]) != Counter(tags[1]):
        return
    pairs = zip(sent, received, strict=True)
    one, other = next(pair for pair in pairs if pair[0].tag != pair[1].tag)
    sender, receiver = one.ranks
    yield IgnoredTag(
        (one.tag, other.tag), (sender, receiver), (one.source, other.source)
    )
