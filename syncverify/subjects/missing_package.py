"""The error of a built-in subject whose package, or a part that it needs, is missing."""


def missing_package(
    package: str, error: ModuleNotFoundError, *, options: str = "--no-deps "
) -> ModuleNotFoundError:
    """Return an error that names what is missing, and how to install it.

    Args:
        package: Name on the package index, such as `megatron-core`.
        error: Error of the import; the missing module may be one that the package imports.
        options: Options of pip for the package; its own requirements may change torch.

    Returns:
        The error to raise.
    """
    missing = (error.name or package).partition(".")[0].replace("_", "-")
    if package.startswith(missing):
        return ModuleNotFoundError(
            f"{package} is missing; install it by `pip install {options}{package}`"
        )
    return ModuleNotFoundError(
        f"{package} cannot be imported, since it needs {missing}, which is missing; "
        f"install that by `pip install {missing}`"
    )
