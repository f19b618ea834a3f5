"""Named guarantees, judged on the observations and traces of a run."""

from syncverify.judge.properties.registry import ALL_PROPERTIES, check, judge_run
from syncverify.judge.properties.streams import overlap

__all__ = ["ALL_PROPERTIES", "check", "judge_run", "overlap"]
