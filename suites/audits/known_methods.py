"""Find every audit method of this folder by file name, ordered by precedence."""

import importlib
import pkgutil
from functools import cache

from ..jobs.block_job import AuditRequest
from . import __path__ as _FOLDERS
from .audit_method import AttackMethod, AuditMethod, BlockMethod


# Cached: every block and every audit looks up its method.
@cache
def audit_methods() -> dict[str, AuditMethod]:
    """Return every audit method of this folder, keyed by file name, lowest precedence first."""
    modules = [importlib.import_module(f"{__package__}.{entry.name}") for entry in pkgutil.iter_modules(_FOLDERS)]
    found: list[AuditMethod] = [module.METHOD for module in modules if hasattr(module, "METHOD")]
    return {method.name: method for method in sorted(found, key=lambda method: method.precedence)}


def block_method(name: str) -> BlockMethod:
    """Return the audit method of this file name; raise ValueError unless it runs federations or trials of its own."""
    running = {label: method for label, method in audit_methods().items() if isinstance(method, BlockMethod)}
    if name not in running:
        raise ValueError(
            f"the audit method must be one that runs federations itself: {', '.join(running)}; got {name!r}"
        )
    return running[name]


def attack_methods() -> list[AttackMethod]:
    """Return the audit methods that use the results of attacks on shadow federations."""
    return [method for method in audit_methods().values() if isinstance(method, AttackMethod)]


def chosen_method(request: AuditRequest) -> tuple[BlockMethod, str]:
    """Choose the audit method for a claim; also return why that method cannot audit the claim (empty string if it can).

    A claim that the method chosen by its law cannot audit is recorded under the method that the suite chose.

    Raises:
        ValueError: for a published law that cannot be evaluated.
    """
    methods = [method for method in audit_methods().values() if isinstance(method, BlockMethod)]
    # Methods are sorted by precedence, so the first that covers the claim is the one; every canary design has one.
    method = next(method for method in methods if method.covers(request))
    reason = method.out_of_scope(request)
    if reason and not method.chosen_by_suite:
        method = next(other for other in methods if other.chosen_by_suite and other.covers(request))
    return method, reason
