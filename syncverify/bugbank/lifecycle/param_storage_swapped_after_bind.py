"""Reported in pytorch/pytorch#104336."""

from __future__ import annotations

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.contracts import only
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import Entry


class TrustsViews(Careful):
    """Who drops a `.grad` gets the next one elsewhere, and it is not missed."""

    outside = only("event=set_to_none")

    @override
    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass


class TrustsViewsOfMoved(TrustsViews):
    """Gradients are no longer views once their parameters were moved."""

    outside = only("event=move")


ENTRY = Entry(
    subject=TrustsViewsOfMoved,
    twin=Careful,
    source="pytorch/pytorch#104336",
    trigger="parameters that move after bind(), 2 steps",
    silent=True,
    property="accumulation_is_local_until_reduced",
    cause="view_lost",
    uses_streams=True,
)
