"""Three right steps of a synchronizer with one bucket and a side stream."""

import re

_STEP = """
    call backward {0} 0;
        @hook rw b[0:8] default; @hook rw b[8:16] default;
        @fork wait side default; @launch reduce c{0} b[0:16] side>nccl;
    return;
    call wait {0};
        @await await c{0} side; @divide rw b[0:16] side; @join wait default side;
    return;
    @observe r b[0:16] default;
    call zero_grad {0};
        @zero w b[0:16] default;
    return;
"""
STEPS = "".join(_STEP.format(step) for step in range(3))


def without(line: str, program: str = STEPS) -> str:
    """Leave out a line in every step."""
    return re.sub(rf"@{line} [^;]+;", "", program)


def with_line(line: str, instead: str, program: str = STEPS) -> str:
    """Put another statement in a line's place; `#` stands for the step."""
    steps = program.split("call backward")
    return "call backward".join(
        re.sub(rf"@{line} [^;]+;", instead.replace("#", str(step)) + ";", text)
        for step, text in enumerate(steps, start=-1)
    )
