"""Property-based verification of gradient synchronizers.

Names are resolved on first use (PEP 562), so `import syncverify` imports neither torch nor
Hypothesis: `syncverify --help` and test collection stay fast.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from syncverify.rendered import Rendered

if TYPE_CHECKING:
    from syncverify.command.verification.assertion import assert_right as assert_right
    from syncverify.command.verification.verify import CoverageGap as CoverageGap
    from syncverify.command.verification.verify import (
        PropertyViolation as PropertyViolation,
    )
    from syncverify.command.verification.verify import verify as verify
    from syncverify.errors import SyncverifyError as SyncverifyError
    from syncverify.errors import UsageError as UsageError
    from syncverify.faces.one_play import PlayedScenario as PlayedScenario
    from syncverify.faces.one_play import play as play
    from syncverify.faces.simulation.program import region as region
    from syncverify.faces.simulation.simulate import simulate as simulate
    from syncverify.faces.simulation.testing.case import SimTestCase as SimTestCase
    from syncverify.faces.whole_step.parity import parity as parity
    from syncverify.pytest_plugin import check as check
    from syncverify.scenario.contract import Capabilities as Capabilities
    from syncverify.scenario.scenario import Scenario as Scenario
    from syncverify.scenario.specs import MeshSpec as MeshSpec
    from syncverify.scenario.specs import ParameterSpec as ParameterSpec

# Name to module. `verification` imports strategies, and strategies import this package: an
# import up here would be a cycle.
_MODULES = {
    "Capabilities": "syncverify.scenario.contract",
    "CoverageGap": "syncverify.command.verification.verify",
    "MeshSpec": "syncverify.scenario.specs",
    "ParameterSpec": "syncverify.scenario.specs",
    "PlayedScenario": "syncverify.faces.one_play",
    "PropertyViolation": "syncverify.command.verification.verify",
    "Scenario": "syncverify.scenario.scenario",
    "SimTestCase": "syncverify.faces.simulation.testing.case",
    "SyncverifyError": "syncverify.errors",
    "UsageError": "syncverify.errors",
    "assert_right": "syncverify.command.verification.assertion",
    "parity": "syncverify.faces.whole_step.parity",
    "play": "syncverify.faces.one_play",
    "check": "syncverify.pytest_plugin",
    "region": "syncverify.faces.simulation.program",
    "simulate": "syncverify.faces.simulation.simulate",
    "verify": "syncverify.command.verification.verify",
}
__all__ = [*_MODULES]


# The report, which no result imports.
Rendered.report = functools.partial(
    importlib.import_module, "syncverify.report.results"
)


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List public names as well, so that shells complete them before their first use."""
    return sorted({*globals(), *__all__})
