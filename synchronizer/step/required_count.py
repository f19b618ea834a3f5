"""The number of backwards in a step, which has to be set before the first backward."""

from syncverify.synchronizer.contract.errors import LifecycleError


def known_count(require_accumulations: int | None, call: str) -> int:
    """Return the number of backwards in a step, or refuse a call that came before it.

    Args:
        require_accumulations: The number; None where the caller has not set one.
        call: The call that needs the number.

    Raises:
        LifecycleError: The number was never set.
    """
    if require_accumulations is None:
        raise LifecycleError(
            f"{call} was called before the required accumulations were set",
            expected="a number of backwards in a step, before its first backward",
            got="no require_accumulations, and no set_required_accumulations()",
            hint="call set_required_accumulations(count) before the first backward; after a"
            " backward without it, call synchronizer.zero_grad() as well",
        )
    return require_accumulations
