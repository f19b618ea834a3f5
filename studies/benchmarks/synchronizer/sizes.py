"""The sizes of one run of the benchmark, and tiny ones to try the command."""

from collections.abc import Mapping
from dataclasses import dataclass

KIB_BYTES = 2**10
MIB_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The size of a stack of linear layers without biases: all parameters are alike.

    Attributes:
        num_layers: Number of layers.
        width: A weight has width * width float32 elements.
        batch: Rows of the input.
    """

    num_layers: int
    width: int
    batch: int = 8


@dataclass(frozen=True, slots=True)
class LinkSize:
    """A simulated link.

    Attributes:
        latency_us: Latency of every message, in microseconds.
        gb_per_second: Bandwidth, in 10**9 bytes a second.
        target: Largest accepted exposed communication, as a multiple of DDP's.
    """

    latency_us: float
    gb_per_second: float
    target: float = 1.1

    @property
    def label(self) -> str:
        """Return the name in a table."""
        return f"{self.latency_us:g}us_{self.gb_per_second:g}GBps"


@dataclass(frozen=True, slots=True)
class Sizes:
    """All sizes of one run of the benchmark.

    Attributes:
        models: Models for the comparison of steps, by label.
        bucket_mib: Bucket cap of both contestants, against DDP.
        d9d_bucket_mib: Bucket cap of both contestants, against d9d.
        mesh_bytes: Bytes of the sums over a mesh of two axes, by label.
        link_model: Model that is trained over simulated links.
        links: The simulated links.
    """

    models: Mapping[str, ModelSize]
    bucket_mib: float
    d9d_bucket_mib: float
    mesh_bytes: Mapping[str, int]
    link_model: ModelSize
    links: tuple[LinkSize, ...]


FULL = Sizes(
    models={
        "small": ModelSize(num_layers=400, width=32),
        "medium": ModelSize(num_layers=100, width=256),
        "large": ModelSize(num_layers=24, width=1024),
    },
    bucket_mib=25.0,  # DDP's default
    d9d_bucket_mib=1.0,
    mesh_bytes={"8MiB": 8 * MIB_BYTES, "4KiB": 4 * KIB_BYTES},
    link_model=ModelSize(num_layers=100, width=256, batch=32),
    # A backward of the model takes tens of milliseconds. 25 buckets of 1 MiB take about 3,
    # 15 and 50 ms on these links: easily hidden, just hidden, longer than the backward.
    links=(LinkSize(20, 10), LinkSize(100, 2), LinkSize(1000, 1, target=1)),
)

SMOKE = Sizes(
    models={label: ModelSize(num_layers=4, width=8) for label in FULL.models},
    bucket_mib=FULL.bucket_mib,
    d9d_bucket_mib=FULL.d9d_bucket_mib,
    mesh_bytes=dict.fromkeys(FULL.mesh_bytes, 4 * KIB_BYTES),
    link_model=ModelSize(num_layers=4, width=8),
    links=FULL.links,
)
