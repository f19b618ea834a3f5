"""Write the page about the bug bank from its entries and figures: `make catalogue`."""

import json
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from studies.documents import RESULTS, Document, table
from syncverify.bugbank.catalogue import SECTIONS, entries
from syncverify.bugbank.entry import Entry

FIGURES: Final = RESULTS / "bug-bank.json"  # of `syncverify bank --json`
HEAD = """\
# Bug bank

Written by `make catalogue` from `syncverify/bugbank/` and from the figures in
`studies/results/bug-bank.json`; a test compares. Each entry is one small module with a defect
that a public report describes, put into a small synchronizer, and with its fixed twin,
which has to be silent in the scenarios of the defect. The synchronizers use views into
flat buckets, copies into buckets, buffers in turns, sums of reduced micro-batches, gradients
left to autograd, or flags like those of `no_sync`. An entry copies the mechanism of the
reported defect, and no code.

```console
$ syncverify bank                                  # all of them
$ syncverify bank --only missing-record-stream     # one
$ syncverify bank --backend gloo --jobs 4          # those that take no streams
$ syncverify bank --twin-examples 1000 --json bank.json
```

A search ends at its first violation, which is then shrunk. Exit code 0 means that each
defect was caught and each twin was silent, 1 that this is not so. A defect is *caught* by any
violation; the *cause* is right if it is one that the entry names, which points to the mistake
(nine entries name two, as the mistake shows otherwise in other scenarios). The *contract* is the smallest one that shows the defect: `plain`, for plain training
steps alone, or the feature that a contract has to name. *Silent* defects give a wrong gradient,
or waste time or memory, on real hardware without an error or a hang. `--diagnose` looks for a
*fix* of each defect, as `syncverify run` does, and for a *guilty line* in the report: a line that the twin has not,
or, where the defect lacks something, a line of the function that lacks it or calls that.
The report shows a line if it has it among its events, under `missing at:` or `ran only where it
fails:`, or in the fix. Bear in mind that most entries override one method of a synchronizer that is
right. So the rule "the subject's own class comes first" finds more here than in a class without
bases, and so does the candidate "ask the base class in place of this override" among fixes.
"""
LEFT_OUT = """\
## Left out

Reported defects that are not in the bank, since scenarios or properties cannot express them:

| defect | reason |
|---|---|
| an infinite gradient skips a step (deepspeedai/DeepSpeed#8415), sums overflow in float16 (pytorch/pytorch#59576) | gradients are whole numbers that all sums can hold |
| ranks weigh their means by tokens (huggingface/transformers#34373) | ranks do not weigh anything |
| the norm counts replicas twice (NVIDIA-NeMo/RL#3788) | gradients are judged, norms are not |
| zeros in place of no gradient (pytorch/pytorch#28294) | both are right here |
| a weight gradient assigned after its hook (NVIDIA/Megatron-LM#6693) | autograd writes all gradients |
| tied weights of two pipeline stages (NVIDIA/Megatron-LM#844) | there is one model, and no pipeline |
| `record_stream` holds memory back (pytorch/pytorch#147168) | a report shows it, and it is no violation |
| parameters start at addresses that slow kernels down (NVIDIA/Megatron-LM#4889) | alignment is not checked |
| an error is reported in the next forward (pytorch/pytorch#68297) | reductions do not fail |
| compiled autograd calls no hooks (pytorch/pytorch#109774) | too slow to be drawn |
"""

_COLUMNS: Final = (
    *("id, source", "mechanism", "trigger", "silent"),
    *("caught by", "contract", "scenarios", "shrunk to"),
)


def page() -> str:
    """Return the page."""
    played = {row["id"]: row for row in figures()["entries"]}
    parts = [HEAD, *_summary(played), ""]
    for section in SECTIONS:
        own = [entry for entry in entries() if entry.section == section]
        parts += [*_section(section, own, played), ""]
    return "\n".join([*parts, LEFT_OUT])


def figures() -> Any:
    """Return the figures that `syncverify bank --json` wrote."""
    return json.loads(FIGURES.read_text())


def _summary(played: dict[str, Any]) -> Iterator[str]:
    rows = [*played.values()]
    caught = [row for row in rows if row["caught"]]
    right = sum(row["is_cause_right"] for row in rows)
    silent = sum(row["alarm"] is None for row in rows)
    sizes = [row["caught"] for row in caught]
    plain = sum(size["contract"] == "plain" for size in sizes)
    yield (
        f"Figures: on `{rows[0]['backend']}`, seed {figures()['seed']}, at most "
        f"{figures()['examples']} scenarios a defect and {figures()['twin_examples']} a "
        "twin. Drawn scenarios change between versions, and so does the number of scenarios up "
        "to a defect."
    )
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| caught | {len(caught)} of {len(rows)} |"
    yield f"| caught in plain training steps | {plain} of {len(rows)} |"
    yield f"| cause right | {right} of {len(rows)} |"
    diagnosed = [row for row in rows if row.get("is_line_shown") is not None]
    if diagnosed:
        shown = sum(row["is_line_shown"] for row in diagnosed)
        fixed = sum(bool(row["fix"]) for row in diagnosed)
        yield f"| the report shows a guilty line | {shown} of {len(diagnosed)} |"
        yield f"| it has a fix as code that was played | {fixed} of {len(diagnosed)} |"
    yield (
        f"| median to detection | {median(row['examples'] for row in caught):g} "
        f"scenarios, {median(row['seconds'] for row in caught):.1f} s |"
    )
    yield (
        f"| median after shrinking | {median(s['ranks'] for s in sizes):g} ranks, "
        f"{median(s['parameters'] for s in sizes):g} parameters, "
        f"{median(s['steps'] for s in sizes):g} steps |"
    )
    yield f"| twins silent | {silent} of {len(rows)} |"


def _section(title: str, own: list[Entry], played: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from table(_COLUMNS, (_cells(each, played.get(each.id)) for each in own))


def _cells(entry: Entry, row: dict[str, Any] | None) -> list[str]:
    name = f"`{entry.id}`<br>{_link(entry.source)}"
    silent = "yes" if entry.silent else "no"
    return [name, entry.mechanism, entry.trigger, silent, *_found(row)]


def _found(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["not measured", "", "", ""]
    caught = row["caught"]
    if not caught:
        return ["missed", "", str(row["examples"]), ""]
    identity = f"`{caught['property']}` ({caught['cause']})"
    if not row["is_cause_right"]:
        identity += ", not the cause"
    size = f"{caught['ranks']} x {caught['parameters']} x {caught['steps']}"
    return [identity, f"`{caught['contract']}`", str(row["examples"]), size]


def _link(source: str) -> str:
    project, _, number = source.partition("#")
    return f"[{source}](https://github.com/{project}/issues/{number})"


PAGE: Final = Document("docs/bug-bank.md", page)
