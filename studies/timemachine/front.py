"""The pair on the front page: the command and the stored diagnosis, in the README."""

from __future__ import annotations

import re
from typing import Final

from timemachine.pairs import table
from timemachine.playing import ROOT
from timemachine.results import Result

README: Final = ROOT / "README.md"
_PAIR: Final = "megatron-3670"
_BEGIN: Final = f"<!-- {_PAIR} -->\n"
_BLOCK: Final = re.compile(
    f"(?<={re.escape(_BEGIN)})(?:```console\n.*?\n```text\n.*?\n```\n)?", re.DOTALL
)


def readme(results: dict[str, Result]) -> str:
    """Return the README with the diagnosis of today."""
    return _BLOCK.sub(
        lambda _: _shown(results[_PAIR]), README.read_text(encoding="utf-8"), count=1
    )


def _shown(result: Result) -> str:
    """Return the command, the seconds and the diagnosis as Markdown."""
    found = result.bad
    if found is None:
        return ""
    pair = table()[_PAIR]
    release = f"{pair.package}=={pair.bad}"
    effort = f"{found.examples} scenarios and {found.seconds:.0f} s of processor time"
    return f"""\
```console
$ pip install --no-deps {release}
$ {found.command}
```

and it answers after {effort}, on a CPU ({result.date}; paths are those inside of the
release):

```text
{found.shown_diagnosis}
```
"""
