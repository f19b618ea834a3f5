"""A mode that notes the operators of torch."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override


class Operators(TorchDispatchMode):
    """Notes the name of each operator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **kwargs or {})
