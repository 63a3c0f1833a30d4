"""Every defense or attack of the package, imported."""

from fedassay.attacks.attack import Attack
from fedassay.defenses.defense import Defense
from fedassay.suites.config.part_files import Kind, own_parts

_OF_CLIENTS: dict[Kind, type] = {"defense": Defense, "attack": Attack}


def parts_by_name(kind: Kind) -> dict[str, type]:
    """Those of federations of clients."""
    return {name: part for name, part in all_parts(kind).items() if issubclass(part, _OF_CLIENTS[kind])}


def vertical_parts(kind: Kind) -> dict[str, type]:
    """Those of vertical federations."""
    return {name: part for name, part in all_parts(kind).items() if not issubclass(part, _OF_CLIENTS[kind])}


def all_parts(kind: Kind) -> dict[str, type]:
    return {name: part.load() for name, part in own_parts(kind).items()}
