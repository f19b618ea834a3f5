"""A peer that fails plain steps of several backwards, played with one backward a step."""

from dataclasses import replace
from typing import ClassVar

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import MAX_ACCUMULATIONS
from syncverify.subjects.ddp import StaticGraphSubject
from syncverify.subjects.subject import resolve


class StaticGraphOfOneBackward(StaticGraphSubject):
    """DDP's static graph without `no_sync`, under which it fails: see docs/findings.md."""

    capabilities: ClassVar[Capabilities] = replace(
        resolve("ddp-static-graph").capabilities,
        outside=frozenset(
            f"accumulations={n}" for n in range(2, MAX_ACCUMULATIONS + 1)
        ),
    )
