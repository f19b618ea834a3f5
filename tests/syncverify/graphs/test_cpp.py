"""What is written in C++ is compiled before ranks are watched, and only if it is used."""

import threading

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.graphs import cpp
from syncverify.graphs.matrix import scenario_of
from syncverify.graphs.uses import USES
from syncverify.subject import resolve
from syncverify.vocabulary import PLAIN


def test_words_are_those_that_are_compiled() -> None:
    assert {*cpp.IN_CPP} == {word for word in USES if word.startswith("cpp_")}


@pytest.mark.parametrize(("word", "expected"), [("cpp_kernel", 1), (PLAIN, 0)])
def test_ranks_do_not_compile(
    word: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Thread] = []

    def refuse() -> None:
        asked.append(threading.current_thread())
        raise cpp.NoCompilerError("no compiler in this test")

    monkeypatch.setattr(cpp, "load_operators", refuse)
    subject = resolve("synchronizer")
    if expected:
        with pytest.raises(cpp.NoCompilerError):
            SimBackend().run(scenario_of("use", word), subject)
    else:
        assert SimBackend().run(scenario_of("use", word), subject).fault is None
    assert asked == [threading.main_thread()] * expected
