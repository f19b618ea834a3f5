"""Names for the data of collectives, alike on ranks that run the same lines.

Note [What names data]
    Ranks number their storages by themselves, so a number says little about another rank. What
    ranks of one program have in common is:

    1. data that an operator makes of nothing, such as `zeros`: the operator, its line, and how
       often that line ran it before;
    2. a copy, which may be scaled, of another dtype, or one of FSDP2: the data that was copied;
    3. the gradient of a leaf: the data of the leaf. Backward passes may differ in their order.

    Data that was computed has no name: ranks may compute on other batches, in another order. An
    operator that reads what it writes, such as `add_`, leaves the name of the memory.
"""

import dataclasses
import hashlib
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import override

from syncverify.sim.device.torch_internals import local_part
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.recording.raw_accesses import RawAccess, RawFree, RawPlace
from syncverify.trace.records import CollectiveLaunch, TraceRecord
from syncverify.trace.source_lines import NoLine
from syncverify.trace.stacks import RawFrames, frames_of

_COPIES = frozenset({
    "_to_copy", "all_gather_copy_in", "cat", "chunk_cat", "clone", "copy_", "div", "mul",
    "split_with_sizes_copy", "stack",
})  # fmt: skip


class NamingRecorder(RankRecorder):
    """Names the data of collectives, too; see Note [What names data].

    Without recorded operators no data has a name.
    """

    def __init__(self, *, records_accesses: bool = True) -> None:
        super().__init__(records_accesses=records_accesses)
        self._leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        # Numbers of storages: of a gradient, and of its leaf.
        self._leaf_of: dict[int, int] = {}
        # Names of data, by the number of the storage that holds it.
        self._names: dict[int, str] = {}
        self._counts = Counter[str]()
        self._lines: dict[RawFrames, str] = {}

    @override
    def _note_leaves(self, leaves: list[torch.Tensor]) -> None:
        super()._note_leaves(leaves)
        self._leaves.update((id(leaf), weakref.ref(leaf)) for leaf in leaves)

    @override
    def launch(
        self, operation: str, tensors: list[torch.Tensor], **fields: Any
    ) -> CollectiveLaunch:
        for tensor in tensors:
            if self._known_number(tensor) not in self._leaf_of:
                self._find_gradients()
        return super().launch(operation, tensors, **fields)

    def _find_gradients(self) -> None:
        """Note the gradients that leaves have now."""
        for reference in self._leaves.values():
            leaf = reference()
            if leaf is None or not leaf.is_leaf or leaf.grad is None:
                continue
            gradient, data = map(self._known_number, (leaf.grad, leaf))
            if gradient is not None and data is not None:
                self._leaf_of[gradient] = data

    def _known_number(self, tensor: torch.Tensor) -> int | None:
        """Return the number of the storage of a tensor; None if no operator has used it."""
        local = local_part(tensor)
        if local.layout is not torch.strided:
            return None
        known = self.storages.known(local.untyped_storage())
        return None if known is None else known.number

    @override
    def _finished(self, raw: list[RawAccess | RawFree | RawPlace]) -> list[TraceRecord]:
        done, found = 0, list[TraceRecord]()
        accesses = (each for each in raw if isinstance(each, RawAccess))
        for access in sorted(accesses, key=lambda each: each.position):
            found += map(self._named, self.trace[done : access.position])
            done = access.position
            self._name_filled(access)
        found += map(self._named, self.trace[done:])
        self.trace[:] = found
        return super()._finished(raw)

    def _name_filled(self, access: RawAccess) -> None:
        """Name the data with which an operator fills memory."""
        read, used = (
            dict.fromkeys(each.storage.number for each in regions)
            for regions in (access.reads, (*access.made, *access.writes))
        )
        filled = [number for number in used if number not in read]
        if not filled:
            return
        cause = self._cause(access, [*read])
        self._counts[cause] += 1
        for index, number in enumerate(filled):
            name = f"{cause}-{self._counts[cause]}-{index}" if cause else ""
            self._names[number] = name

    def _cause(self, access: RawAccess, read: Sequence[int]) -> str:
        """Return what makes data, in few characters; "" for data that is computed."""
        sources = [self._name(number) for number in read]
        is_copy = access.operator.split(".")[1] in _COPIES and all(sources)
        if isinstance(access.line, NoLine) or (sources and not is_copy):
            return ""
        if access.line not in self._lines:
            self._lines[access.line] = repr(frames_of(access.line))
        key = f"{access.operator} {self._lines[access.line]} {sources}"
        return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()

    def _name(self, number: int) -> str:
        leaf = self._leaf_of.get(number)
        if leaf is None:
            return self._names.get(number, "")
        of_leaf = self._names.get(leaf, "")
        return f"gradient of {of_leaf}" if of_leaf else ""

    def _named(self, event: TraceRecord) -> TraceRecord:
        """Return an event; a collective gets the names of its data."""
        if not isinstance(event, CollectiveLaunch):
            return event
        regions = event.regions or event.written
        names = tuple(self._name(region.storage) for region in regions)
        return dataclasses.replace(event, data_names=names)
