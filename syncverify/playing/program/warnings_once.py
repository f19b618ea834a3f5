"""Warnings in a process that plays scenarios: each is shown once."""

import importlib
import logging
import warnings
from contextlib import suppress
from types import SimpleNamespace
from typing import Final, TextIO

# DTensor advises here to flatten the axes of a mesh, for speed. Scenarios are no jobs to speed up,
# and among lines of a report the advice looks like a finding.
_ADVICE: Final = "torch.distributed.tensor._redistribute"
# Autograd advises to give a gradient the strides of its parameter, for speed as well.
_STRIDES: Final = "grad and param do not obey the gradient layout contract"
# DTensor tries an operator on shapes alone first, and logs an error that it raises as well.
_RAISED_TOO: Final = "torch._subclasses.fake_tensor"
# FSDP2 prints the texts and the stacks of some errors that it raises as well.
_PRINTED_TOO: Final = "torch.distributed.fsdp._fully_shard._fsdp_common"


def show_warnings_once() -> None:
    """Show each distinct warning once from now on, and no report of an error made by design.

    Python's own filters do not suffice: they forget the warnings that were shown whenever a
    filter changes, and torch changes filters in many calls. Scenarios make steps fail by
    design, and torch reports the nodes that led to the error. Only processes of the harness
    call this function: in the user's own process, the user wants to see all of them.
    """
    logging.getLogger(_ADVICE).setLevel(logging.ERROR)
    logging.getLogger(_RAISED_TOO).setLevel(logging.CRITICAL)
    # Hide `print` and `print_stack` from one module: its function stays in tracebacks.
    with suppress(ImportError):  # a private module, which a release may move
        names = vars(importlib.import_module(_PRINTED_TOO))
        names["print"] = lambda *_, **__: None
        names["traceback"] = SimpleNamespace(print_stack=lambda: None)
    for start in ("Error detected in ", _STRIDES):
        warnings.filterwarnings("ignore", start, UserWarning)
    shown = set[tuple[str, str, int]]()
    show = warnings.showwarning

    def once(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        key = (str(message), filename, lineno)
        if key not in shown:
            shown.add(key)
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = once
