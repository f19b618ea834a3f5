"""A process that forks ranks which hash: `python -m studies.comparison.hashes_worker`."""

import importlib
import sys

from studies.comparison.hashes import play_with_hashes
from studies.comparison.one_worker import serve


def main(descriptor: int) -> None:
    """Serve on an inherited socket, whose file descriptor is given."""
    importlib.import_module("torch._dynamo")  # here, and not in each forked process
    serve(descriptor, play_with_hashes)


if __name__ == "__main__":
    main(int(sys.argv[1]))
