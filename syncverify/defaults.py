"""Names and default values that the help of a command shows; they need no import of torch."""

from __future__ import annotations

# Names of NCCL in torch; see Note [Names of NCCL] in `syncverify/sim/device/nccl_names.py`.
NCCL_NAMES = ("nccl", "nccl2", "nccl-lazy", "nccl-legacy")
BACKEND_NAMES = ("sim", "gloo", *NCCL_NAMES, "fake")
RECIPE_NAMES = ("ddp", "hooks", "optimizer", "globals")  # of `syncverify init`

DEFAULT_RANKS = 4  # largest world
DEFAULT_EXAMPLES = 200
DEFAULT_SCHEDULES = "drawn"

DEFAULT_BANK_EXAMPLES = 500  # scenarios of one defect, at most
DEFAULT_TWIN_EXAMPLES = 10  # scenarios of one fixed twin, at least
DEFAULT_BANK_SEED = 0

# Features beyond the contract: scenarios of each feature, and runs to simplify the worst.
OBSERVED_SCENARIOS = 3
OBSERVED_SIMPLER = 10
PROBED_EXAMPLES = 100  # plain scenarios of a probe
CONFIRMING_EXAMPLES = 150  # scenarios under the contract that a probe found
PROBED_SCENARIOS = 12
PROBED_SIMPLER = 60
