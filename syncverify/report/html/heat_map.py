"""The coverage heat map: how often pairs of features came together."""

from __future__ import annotations

from typing import Any

from syncverify.report.coverage import CoverageSummary


def heat_map(summary: CoverageSummary) -> dict[str, Any]:
    """Return the features, and pairs of their positions with the number of scenarios.

    A pair that is not listed cannot occur.
    """
    features = sorted({name for pair in summary.pairs for name in pair})
    places = {name: place for place, name in enumerate(features)}
    return {
        "features": features,
        "pairs": [
            [places[one], places[other], count]
            for (one, other), count in summary.pairs.items()
        ],
    }
