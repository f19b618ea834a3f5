"""The tables in a document, between two HTML comments."""

from pathlib import Path


class InvalidDocumentError(Exception):
    """A document is missing, or does not contain both markers."""


def markers(name: str) -> tuple[str, str]:
    """Return the lines around the tables of a benchmark, such as `benchmarks.harness`."""
    return f"<!-- {name}: start -->", f"<!-- {name}: end -->"


def place_of_tables(document: Path, name: str) -> tuple[str, str]:
    """Return the text before and after the tables, markers included.

    Raises:
        InvalidDocumentError: The document is missing, or does not contain both markers,
            the start before the end.
    """
    if not document.is_file():
        raise InvalidDocumentError(f"no document {str(document)!r}")
    first, last = markers(name)
    before, start, rest = document.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not (start and end):
        raise InvalidDocumentError(
            f"{str(document)!r} lacks the lines {first} and {last}"
        )
    return before + start, end + after


def replace_tables(document: Path, tables: str, name: str) -> None:
    """Write new tables into a document, and change nothing else."""
    before, after = place_of_tables(document, name)
    document.write_text(f"{before}\n\n{tables}\n\n{after}")
