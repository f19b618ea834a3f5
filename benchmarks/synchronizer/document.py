"""The tables in a document, between two markers that a reader does not see."""

from pathlib import Path

START = "<!-- benchmarks.synchronizer: start -->"
END = "<!-- benchmarks.synchronizer: end -->"


class InvalidDocumentError(Exception):
    """A document that is missing, or has no place for tables."""


def place_of_tables(document: Path) -> tuple[str, str]:
    """Return what comes before and after the tables, markers included.

    Raises:
        InvalidDocumentError: There is no document, or not one of each marker in order.
    """
    if not document.is_file():
        raise InvalidDocumentError(f"no document {str(document)!r}")
    before, start, rest = document.read_text().partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise InvalidDocumentError(
            f"{str(document)!r} lacks the lines {START} and {END}"
        )
    return before + start, end + after


def replace_tables(document: Path, tables: str) -> None:
    """Put new tables into a document; all else stays as it is."""
    before, after = place_of_tables(document)
    document.write_text(f"{before}\n\n{tables}\n\n{after}")
