"""Write all pages that follow from the code and from stored results; play nothing.

python -m studies.pages
"""

from functools import partial
from typing import Final

import click

from studies.documents import Document
from studies.findings import playing as findings
from studies.mistakes import scoring as mistakes
from studies.mutants import results as mutants
from studies.pages import (
    bank_page,
    cases_page,
    conformance_page,
    power,
    tables,
    versions,
)
from studies.peers import stored_runs
from studies.redteam import scoring as redteam
from studies.releases.__main__ import PAGES as WITH_FACTS
from studies.timemachine import page as timemachine
from studies.torch_tests import page as torch_tests

PAGES: Final = (
    bank_page.PAGE,
    cases_page.PAGE,
    *conformance_page.PAGES,
    findings.PART,
    mistakes.PAGE,
    mutants.PART,
    power.PAGE,
    redteam.PAGE,
    stored_runs.PART,
    timemachine.PAGE,
    torch_tests.PAGE,
    versions.PAGE,
    *tables.PARTS,
    # Written by hand, but for the facts about releases in their marks.
    *(Document(str(path), partial(path.read_text, "utf-8")) for path in WITH_FACTS),
)


@click.command()
def main() -> None:
    """Write all pages that follow from the code and from stored results."""
    for page in PAGES:
        page.write()


if __name__ == "__main__":
    main()
