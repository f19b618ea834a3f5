"""The summary of a fault: one line, the method that raised, the number of its ranks."""

from dataclasses import replace

from syncverify.playing.sim import SimBackend
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter

SCENARIO = one_parameter(1, "p0", (), cap_bytes=64)


class SaysMuch(PlainGrads):
    def wait(self) -> None:
        raise ValueError("expected one rank\n\n  got two\n")


def test_an_exception_of_several_lines_is_reported_in_one() -> None:
    fault = SimBackend().run(SCENARIO, resolve(SaysMuch)).fault
    assert fault.summary == (
        "rank 0 raised ValueError in step 0, wait: expected one rank | got two"
    )


class RefusesCounts(PlainGrads):
    def set_required_accumulations(self, count: int) -> None:
        raise ValueError(f"no {count}")


def test_an_exception_of_the_announcement_names_its_method() -> None:
    played = replace(SCENARIO, accumulations=(1, 2))
    fault = SimBackend().run(played, resolve(RefusesCounts)).fault
    assert fault.summary == (
        "rank 0 raised ValueError in step 1, set_required_accumulations: no 2"
    )
