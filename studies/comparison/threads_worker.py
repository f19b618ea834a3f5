"""A process for ranks that are threads: `python -m studies.comparison.threads_worker`."""

import sys

from studies.comparison.one_worker import serve
from studies.comparison.threads import play_on_threads


def main(descriptor: int) -> None:
    """Serve on an inherited socket, whose file descriptor is given."""
    serve(descriptor, play_on_threads)


if __name__ == "__main__":
    main(int(sys.argv[1]))
