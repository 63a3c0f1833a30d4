"""Known methods: every audit method of this folder, found by file name and ordered by precedence."""

import importlib
import pkgutil
from functools import cache

from ..jobs.block_job import AuditRequest
from . import __path__ as _FOLDERS
from .audit_method import AttackMethod, AuditMethod, BlockMethod


# Cached: every block and every audit looks up its method.
@cache
def audit_methods() -> dict[str, AuditMethod]:
    """The ``METHOD`` of every file of this folder that defines one, by file name, the lowest precedence first."""
    modules = [importlib.import_module(f"{__package__}.{entry.name}") for entry in pkgutil.iter_modules(_FOLDERS)]
    found: list[AuditMethod] = [module.METHOD for module in modules if hasattr(module, "METHOD")]
    return {method.name: method for method in sorted(found, key=lambda method: method.precedence)}


def block_method(name: str) -> BlockMethod:
    """The method of that file name that makes runs; ValueError where there is none."""
    method = audit_methods().get(name)
    if not isinstance(method, BlockMethod):
        raise ValueError(f"no audit method {name!r} makes runs; known: {', '.join(audit_methods())}")
    return method


def attack_methods() -> list[AttackMethod]:
    """The methods that read attacks on shadow federations."""
    return [method for method in audit_methods().values() if isinstance(method, AttackMethod)]


def chosen_method(request: AuditRequest) -> tuple[BlockMethod, str]:
    """The method that audits a claim, and why it cannot (empty where it can).

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
