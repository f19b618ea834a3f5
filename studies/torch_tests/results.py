"""The stored results of torch's tests, simulated and on gloo."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

from studies.documents import RESULTS
from studies.torch_tests.playing import Result, Results

FILE: Final = RESULTS / "torch-tests.json"
SIMULATED, GLOO = "simulated", "gloo"


@dataclass(slots=True)
class Stored:
    """Results of one source.

    Attributes:
        source: Whose copy of the tests was played: `torch` or `torch_npu`.
        name: Tag or commit of the source.
        torch: Version of the installed torch.
        own: Commits of torch's own files that are played beside copies, by file.
        files: Results by file, by `simulated` or `gloo`, and by test.
    """

    source: str = ""
    name: str = ""
    torch: str = ""
    own: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, Results]] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path = FILE) -> Self:
        """Read the stored results; none are there before the first play."""
        if not file.exists():
            return cls()
        stored = cls(**json.loads(file.read_text("utf-8")))
        for ways in stored.files.values():
            for results in ways.values():
                results.update({name: Result(*each) for name, each in results.items()})
        return stored

    def write(self, file: Path = FILE) -> None:
        """Write the results."""
        file.write_text(
            json.dumps(asdict(self), indent=1, sort_keys=True) + "\n", "utf-8"
        )
