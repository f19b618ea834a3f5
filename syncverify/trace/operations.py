"""Kinds of collective operations, by torch's names."""

# Operations that combine the values of ranks.
REDUCING_OPERATIONS = frozenset(
    {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single"}
)
# Operations to which ranks may contribute different numbers of elements.
UNEVEN_OPERATIONS = frozenset(
    {"all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"}
)
# Operations between two ranks of a communicator; its other ranks take no part.
POINT_TO_POINT = frozenset({"send", "recv"})
# Functions that lend bytes to a view: such an access is the read through the view, not the call.
LENDING = frozenset({"Tensor.numpy", "Tensor.__dlpack__", "torch.to_dlpack"})
