"""The subject, which is the gradient synchronizer under test: find it by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from syncverify.errors import SubjectError, SyncverifyError, UsageError
from syncverify.plain_text import kind_of, message_of
from syncverify.scenario.contract import FEATURE_FIELDS, Capabilities, ContractChoice
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.names import check_names
from syncverify.subjects.built_in import BUILT_INS
from syncverify.subjects.contract_choice import (
    built_in_contract,
    chosen_contract,
    contract_of_project,
)
from syncverify.subjects.subject_api import (
    COUNT_SETTER,
    Synchronizer,
    check_methods,
    setter_of,
)
from syncverify.subjects.subject_options import (
    check_is_no_path,
    narrowed,
    split_options,
    with_options,
)
from syncverify.subjects.subject_path import (
    classes_in,
    imported,
    module_path_of,
    path_of,
)

# The class of each built-in subject, by name.
BUILT_IN_SUBJECTS: Final = {name: each.path for name, each in BUILT_INS.items()}

# Called with groups of parameters, the size of a bucket in MiB, and the number of micro-batches
# of the first step; that one only where `Subject.takes_count`.
SubjectFactory = Callable[..., Synchronizer]

# Values that a class attribute has on purpose, as a part of a contract.
_DATA: Final = (str, bytes, int, float, dict, set, frozenset, list, tuple)


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject that was found, with a factory that has the right signature."""

    # As the caller spelled it, with its options, or the path of a class or function.
    name: str
    factory: SubjectFactory
    capabilities: Capabilities
    contract_choice: str = ""
    # Features, as `topic=value`, that the class does not hand on to the synchronizer behind it,
    # each with the reason. Their word would be about the class.
    not_observed: Mapping[str, str] = field(default_factory=dict, compare=False)
    # Whether the contract promises other numbers of micro-batches in later steps, also where
    # `capabilities` do not, since no method of the class takes them.
    promises_counts: bool = field(default=False, compare=False)
    # Whether an instance would take such numbers if it has the method; the factory does not show it.
    may_announce: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """Name in a database, which is the same however the caller spelled the subject."""
        if split_options(self.name)[0] in BUILT_IN_SUBJECTS:
            return self.name
        return path_of(self.factory) if module_path_of(self.factory) else self.name

    @property
    def takes_count(self) -> bool:
        """Tell whether the factory takes the number of micro-batches of the first step.

        Otherwise `set_required_accumulations()` says it after `bind()`.
        """
        return _misfit(self.factory, [], 1.0, 1) is None

    @property
    def groups_argument(self) -> str:
        """Name of the argument that takes the groups of parameters."""
        named = [*inspect.signature(self.factory).parameters.values()][:1]
        is_one = named and named[0].kind is not inspect.Parameter.VAR_POSITIONAL
        return named[0].name if is_one else "param_groups"


def same_signature(
    factory: SubjectFactory,
) -> Callable[[SubjectFactory], SubjectFactory]:
    """Give a function the signature of a factory, which tells how a subject is made."""

    def decorate(function: SubjectFactory) -> SubjectFactory:
        vars(function)["__signature__"] = inspect.signature(factory)
        return function

    return decorate


def resolve(
    subject: str | SubjectFactory, contract: ContractChoice | None = None
) -> Subject:
    """Find a subject and check that it has the subject API.

    Args:
        subject: A built-in name, such as `ddp` or `fsdp2:reduce_dtype=float32`,
            `module:attribute`, or the class or factory itself.
        contract: A name, a file or a value that replaces the contract of the subject.

    Raises:
        SubjectError: The import fails, or a part of the subject API is missing.
        SyncverifyError: The contract cannot be used, or names a feature in vain.
    """
    if isinstance(subject, str):
        factory, name = _load(subject), subject
    else:
        factory, name = subject, path_of(subject)
    try:
        return _inspected(factory, name, contract)
    except SyncverifyError:
        raise
    except Exception as error:  # a metaclass may answer every question by an exception
        raise SubjectError(
            f"subject {name!r} cannot be inspected: {kind_of(error)}: {message_of(error)}"
        ) from error


def _inspected(
    factory: SubjectFactory, name: str, contract: ContractChoice | None
) -> Subject:
    """Check the API of a factory, and return the subject with its contract."""
    if not callable(factory):
        raise SubjectError(
            f"subject {name!r} is not callable: expected a class or factory"
        )
    _check_signature(factory, name)
    if inspect.isclass(factory):
        check_methods(factory, name)
    capabilities = narrowed(factory, _contract(factory, name, contract))
    check_names(capabilities, subject=name)
    chosen = str(contract) if isinstance(contract, str | Path) else ""
    found = Subject(name, factory, capabilities, chosen, _not_observed(factory, name))
    if capabilities.varying_accumulations:
        return _with_promised_counts(found)
    if setter_of(factory) != "instance":
        return found
    announcing = _contract(factory, name, contract, announces=True)
    # A contract may say that it does not.
    return replace(found, may_announce=announcing.varying_accumulations)


def _with_promised_counts(subject: Subject) -> Subject:
    """Return a subject whose contract promises other counts, as far as its class takes them.

    A subject that runs micro-batches itself is given the last one of each step. One that takes no
    count as it is made has the method, or is refused.
    """
    factory = subject.factory
    places = {setter_of(factory), setter_of(factory, "run_micro_batch")}
    is_sure = not subject.takes_count or "class" in places
    varies = is_sure or "instance" in places
    return replace(
        subject,
        capabilities=replace(subject.capabilities, varying_accumulations=varies),
        promises_counts=True,
        may_announce=varies and not is_sure,
    )


def _not_observed(factory: SubjectFactory, name: str) -> Mapping[str, str]:
    """Read the attribute `not_observed` of a class; every name in it has to be a feature."""
    declared: Mapping[str, str] = getattr(factory, "not_observed", {})
    for feature in declared:
        if Feature.of(feature) not in OPTIONAL:
            raise SubjectError(
                f"subject {name!r}: expected features in not_observed, got {feature!r}"
            )
    return declared


def _contract(
    factory: SubjectFactory,
    name: str,
    choice: ContractChoice | None,
    *,
    announces: bool = False,
) -> Capabilities:
    """Return the contract: the chosen one, the subject's own, the project's, or plain."""
    own = _own_contract(factory, name, announces=announces)
    base, _ = split_options(name)
    if choice is None and base in BUILT_IN_SUBJECTS:
        return built_in_contract(base, own)
    declares = hasattr(factory, "capabilities") or _feature_attributes(factory)
    if choice is None and not declares:
        choice = contract_of_project()
    return own if choice is None else chosen_contract(choice, own)


def _feature_attributes(factory: SubjectFactory) -> dict[str, Any]:
    """Read `features`, `right`, `refused`, `outside` of a class that has no `capabilities`."""
    # A method or a property of such a name is the subject's own matter.
    found = {name: getattr(factory, name, None) for name in FEATURE_FIELDS}
    return {name: value for name, value in found.items() if isinstance(value, _DATA)}


def _own_contract(
    factory: SubjectFactory, name: str, *, announces: bool
) -> Capabilities:
    declared = getattr(factory, "capabilities", None)
    if isinstance(declared, Capabilities):
        return declared
    try:
        if isinstance(declared, _DATA):
            raise UsageError(
                f"expected `capabilities` as Capabilities, got {declared!r}"
            )
        return Capabilities(
            # All instances have the setter; without a count they are refused otherwise.
            varying_accumulations=announces
            or _misfit(factory, [], 1.0, 1) is not None
            or setter_of(factory) == "class",
            overlaps_backward=getattr(factory, "overlaps_backward", False),
            **_feature_attributes(factory),
        )
    except UsageError as error:
        raise SubjectError(f"subject {name!r}: {error}") from error


def _check_signature(factory: SubjectFactory, name: str) -> None:
    error = _misfit(factory, [], 1.0, 1)
    if error is None:
        return
    hint = ""
    if _misfit(factory, [], 1.0) is None:
        if setter_of(factory) != "none":
            return
        hint = f"; without require_accumulations it needs {COUNT_SETTER}()"
    raise SubjectError(
        f"subject {name!r} cannot be called as (param_groups, bucket_size_mb, "
        f"require_accumulations): {message_of(error)}{hint}"
    ) from error


def _misfit(factory: SubjectFactory, *given: object) -> Exception | None:
    """Return the error of a call with these arguments, or None if they fit."""
    try:
        inspect.signature(factory).bind(*given)
    except (TypeError, ValueError) as error:
        return error
    return None


def _load(name: str) -> SubjectFactory:
    """Find the factory of a built-in name, with its options, or of a path."""
    check_is_no_path(name)
    base, options = split_options(name)
    try:
        factory = _imported(BUILT_IN_SUBJECTS.get(base, base))
    except SubjectError as error:
        # Options without "=", such as `fsdp2:reshard`. A module that has the name of a built-in
        # subject is found first.
        base, _, rest = name.partition(":")
        missing = getattr(error.__cause__, "name", "")
        if not rest or base not in BUILT_IN_SUBJECTS or missing != base:
            raise
        factory, options = _imported(BUILT_IN_SUBJECTS[base]), tuple(rest.split(","))
    return with_options(factory, base, options) if options else factory


def _imported(path: str) -> SubjectFactory:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        if classes := classes_in(Path(module_name)):
            paths = ", ".join(f"{module_name}:{each}" for each in classes)
            raise SubjectError(f"name one class of {module_name!r}: {paths}")
        raise SubjectError(
            f"unknown subject {path!r}: expected one of "
            f"{', '.join(sorted(BUILT_IN_SUBJECTS))}, module:attribute or file.py:attribute"
        )
    return imported(path, "subject")  # type: ignore[no-any-return]  # resolve() checks it
