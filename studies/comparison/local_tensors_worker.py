"""A process for one program on LocalTensors: `python -m studies.comparison.local_tensors_worker`."""

import sys

from studies.comparison.local_tensors import play_on_local_tensors
from studies.comparison.one_worker import serve


def main(descriptor: int) -> None:
    """Serve on an inherited socket, whose file descriptor is given."""
    serve(descriptor, play_on_local_tensors)


if __name__ == "__main__":
    main(int(sys.argv[1]))
