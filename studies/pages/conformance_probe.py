"""The observation of one column, in a process of its own.

    python -m studies.pages.conformance_probe SUBJECT BACKEND SCENARIOS SEED FILE [FEATURE ...]

plays some plain training steps and then each feature alone, but for the named ones. `syncverify probe` goes on from
there: it mixes the features that were right, and corrects words. A cell is about one feature.
"""

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from syncverify.command.verification.reported_search import run_search
from syncverify.playing.choice import open_backend
from syncverify.scenario.settings import PROBED_EXAMPLES, PROBED_SIMPLER, Settings
from syncverify.search.observation import Observing
from syncverify.subjects.subject import resolve


def main(
    name: str, backend_name: str, scenarios: str, seed: str, file: str, *known: str
) -> None:
    """Write the report of the observation as JSON; known features are not played."""
    own = resolve(name)
    plain = replace(
        own,
        capabilities=own.capabilities.plain(),
        not_observed={**own.not_observed, **dict.fromkeys(known, "known")},
    )
    with closing(open_backend(backend_name, plain)) as backend:
        settings = Settings(examples=PROBED_EXAMPLES, seed=int(seed))
        observing = Observing(int(scenarios), PROBED_SIMPLER)
        report = run_search(plain, backend, settings, observing)
    Path(file).write_text(json.dumps(report.to_json(), allow_nan=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
