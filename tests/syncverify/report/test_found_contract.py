"""The contract that observations lead to, and its corrections."""

from syncverify.judge.violation import Violation
from syncverify.report.found_contract import corrected
from syncverify.report.observed import ObservedFeature
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    (ParameterSpec("p0", (4,), ("R",), use="twice"),),
    (1,),
    2**20,
    backward="split",
)
VIOLATION = Violation(
    property="gradient_equals_reference",
    cause="gradient_missing",
    summary="gradient of 'p0' on rank 0, step 0 is wrong: it is None",
    ranks=(0,),
    parameters=("p0",),
)


def test_a_corrected_feature_names_the_others_of_its_scenario() -> None:
    observed = [
        ObservedFeature(feature, "right", {"right": 3})
        for feature in ("use=twice", "backward=split", "use=masked")
    ]
    found = FoundViolation(VIOLATION, SCENARIO)
    twice, split, masked = corrected(observed, found, "VIOLATION: ...")
    assert twice.rating == split.rating == "wrong"
    assert twice.summary == f"{VIOLATION.summary} (together with backward=split)"
    assert split.summary == f"{VIOLATION.summary} (together with use=twice)"
    assert masked is observed[2]
