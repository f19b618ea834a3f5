"""The text of a script that shows a wrong gradient with torch and the subject alone."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any, Final

from syncverify.command.export import parameters_text
from syncverify.command.export.shown_gradient import ShownGradient
from syncverify.command.export.subject_text import SubjectText
from syncverify.command.export.training_text import TrainingText, bucket_text
from syncverify.plain_text import plain
from syncverify.playing.program.graphs.backwards import BACKWARDS
from syncverify.playing.program.graphs.custom_function import undefined_gradient
from syncverify.playing.program.graphs.errors import InjectedError, failing_term
from syncverify.playing.program.graphs.hooks import install_lasting_hooks
from syncverify.playing.program.graphs.losses import Losses, one_thread
from syncverify.playing.program.graphs.uses import USES
from syncverify.playing.program.two_synchronizers import TwoSynchronizers
from syncverify.report.text import scenario_lines
from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.distribution import in_format
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import overflows
from syncverify.scenario.scenario import Scenario

_SCRIPT: Final = Template('''\
"""The gradient of $parameter is wrong $moment: to see it, run this file.

$summary

$scenario

A loss is the sum of `(parameter * weights)`, so that its gradient is `weights`. The sums are
exact in every order: a difference is no rounding. Exit code 1: wrong; 0: right.
"""

$imports


${definitions}\
def train(rank):
$training


def run(rank, folder):
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=$num_ranks
    )
    sys.exit(0 if train(rank) else 1)


if __name__ == "__main__":
    start = multiprocessing.get_context("spawn").Process
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start(target=run, args=(rank, folder)) for rank in range($num_ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    sys.exit(1 if any(process.exitcode for process in ranks) else 0)
''')
_LOCAL: Final = """\
def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor"""
# Streams of a GPU, for a subject that takes some; a CPU does everything in order.
_NO_STREAMS: Final = """\
# A CPU has no streams: everything happens in order, and there is nothing to wait for.
for name in ("Event", "Stream", "current_stream", "default_stream", "stream", "synchronize"):
    setattr(torch.cuda, name, MagicMock())
torch.Tensor.record_stream = MagicMock()"""
_ALWAYS: Final = (
    "import multiprocessing", "import sys", "import tempfile", "import torch",
    "import torch.distributed as dist", "from torch import nn",
)  # fmt: skip
# Imports of some scenarios only, by a name that the script then has.
_IMPORTS: Final = {
    "Path": "from pathlib import Path",
    "time": "import time",
    "MagicMock": "from unittest.mock import MagicMock",
    "init_device_mesh": "from torch.distributed.device_mesh import init_device_mesh",
    "DeviceMesh": "from torch.distributed.device_mesh import DeviceMesh",
    **{
        name: f"from torch.distributed.tensor import {name}"
        for name in ("DTensor", "Partial", "Replicate", "Shard")
    },
    "_StridedShard": "from torch.distributed.tensor.placement_types import _StridedShard",
}
_EMBEDDABLE: Final[Mapping[str, Any]] = {
    **{function.__name__: function for function in USES.values()},
    **{word: function for word, function in BACKWARDS.items() if word != PLAIN},
    **{
        each.__name__: each
        for each in (
            *(Losses, one_thread, undefined_gradient, in_format),
            *(InjectedError, failing_term, install_lasting_hooks, TwoSynchronizers),
        )
    },
}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A gradient, and all that a script needs to show it."""

    scenario: Scenario
    capabilities: Capabilities
    subject: SubjectText
    methods: frozenset[str]
    takes_count: bool  # whether the constructor takes the number of micro-batches
    shown: ShownGradient
    violation: str  # in words
    # Whether micro-batches leave time to reductions that run beside them. Otherwise a reduction
    # that comes too early may wait for the last micro-batch by chance.
    pauses: bool = False

    def text(self, *, without_streams: bool) -> str:
        """Return the script; `without_streams` is for a subject that takes CUDA streams."""
        training = [*self._training()]
        body = "\n".join(f"    {line}".rstrip() for line in training)
        used = _words([body])
        named = (_EMBEDDABLE[name] for name in _EMBEDDABLE if name in used)
        source = self.subject.source.with_all(named)
        scenario = scenario_lines(self.scenario, self.capabilities.tensors)
        blocks = [*source.definitions.values()]
        if re.search(r"\blocal\(", body):
            blocks.insert(0, _LOCAL)
        if without_streams:
            blocks.insert(0, _NO_STREAMS)
        definitions = "".join(f"{block}\n\n\n" for block in blocks if block)
        return _SCRIPT.substitute(
            parameter=repr(self.shown.spec.name),
            moment=self.shown.moment,
            summary=_in_docstring(self.violation),
            scenario=_in_docstring("\n".join(scenario)),
            imports=self._imports(body + definitions, source.imports),
            definitions=definitions,
            training=body,
            num_ranks=self.scenario.mesh.num_ranks,
        )

    def _training(self) -> Iterator[str]:
        """Yield the lines of the function that trains, and returns whether it is right."""
        taken = {*_EMBEDDABLE, *_IMPORTS, self.subject.expression.partition(".")[0]}
        variables = parameters_text.variable_names(self.scenario, taken)
        uses_mesh = self.capabilities.tensors == "dtensor"
        if uses_mesh:
            yield from parameters_text.mesh_lines(self.scenario)
        yield from parameters_text.parameter_lines(
            self.scenario, variables, uses_mesh=uses_mesh
        )
        subject = f"{self.subject.expression}("
        if self.scenario.synchronizers == "two":
            subject = f"TwoSynchronizers({self.subject.expression}, "
        groups = parameters_text.groups_text(self.scenario, variables)
        training = TrainingText(
            scenario=self.scenario,
            capabilities=self.capabilities,
            methods=self.methods,
            variables=variables,
            make=f"{subject}{groups}, {bucket_text(self.scenario)}",
            takes_count=self.takes_count,
            pauses=self.pauses,
        )
        yield from training.frozen_at_first()
        if self.scenario.backward == "hooks_of_others":
            yield f"install_lasting_hooks([{', '.join(variables.values())}])"
        yield from training.up_to(self.shown.moment)
        yield ""
        yield from self._check(variables[self.shown.spec.name])

    def _check(self, name: str) -> Iterator[str]:
        shown, dtype = self.shown, self.shown.spec.effective_grad_dtype
        if len(shown.expected) < self.scenario.mesh.num_ranks:
            yield f"if rank not in {[*shown.expected]}:"
            yield "    return True"
        yield f"expected = {parameters_text.tensor_by_rank(shown.expected, dtype)}"
        if self.scenario.update == "in_backward" and shown.moment.point == "reduced":
            yield f"actual = taken.get({name})"
        else:
            yield f"actual = None if {name}.grad is None else local({name}.grad)"
        is_cast = step_plan.is_cast(self.scenario, shown.moment.step)
        sides = "actual.double(), expected.double()" if is_cast else "actual, expected"
        equal = f"torch.equal({sides})"
        if overflows(self.scenario):
            equal = f"torch.allclose({sides}, rtol=0, atol=0, equal_nan=True)"
        missing = "is None or" if shown.may_be_missing else "is not None and"
        yield from ("is_right = (", f"    actual {missing}")
        if not is_cast:
            yield "    actual.dtype == expected.dtype and"
        yield from (f"    {equal}", ")")
        yield 'verdict = "right" if is_right else "WRONG"'
        yield "print("
        yield f'    f"rank {{rank}}: {name}.grad is {{verdict}} {shown.moment}\\n"'
        yield '    f"  expected: {expected.tolist()}\\n"'
        yield '    f"  actual:   {None if actual is None else actual.tolist()}\\n",'
        yield '    end="",'  # one write: ranks print at the same time
        yield ")"
        yield "return is_right"

    def _imports(self, text: str, embedded: Iterable[str]) -> str:
        """Return the imports that a text needs, in three blocks."""
        used = _words([text, *self.subject.search_path])
        named = (_IMPORTS[name] for name in _IMPORTS if name in used)
        lines = {*_ALWAYS, *embedded, *named}
        packages = {line: line.split()[1].partition(".")[0] for line in lines}
        standard = {line for line in lines if packages[line] in sys.stdlib_module_names}
        own = [*self.subject.search_path, *self.subject.imports]
        blocks = _sorted(standard), _sorted(lines - standard), own
        return "\n\n".join("\n".join(block) for block in blocks if block)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _sorted(lines: Iterable[str]) -> list[str]:
    """Sort lines of imports, and write those from one module as one line."""
    by_module: dict[str, set[str]] = {}
    for line in lines:
        start, _, name = line.rpartition(" import ")
        by_module.setdefault(start, set()).add(name or line)
    plain_lines = sorted(by_module.pop("", set()))
    return plain_lines + [
        f"{start} import {', '.join(sorted(names))}"
        for start, names in sorted(by_module.items())
    ]


def _in_docstring(text: str) -> str:
    """Return a text that ends no docstring, whatever the subject put into it."""
    return plain(text).replace("\\", "/").replace('"""', "'''")
