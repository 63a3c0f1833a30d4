"""Every defense or attack of the package, imported."""

from fedassay.attacks.attack import Attack
from fedassay.attacks.transfer.vote_attack import VoteAttack
from fedassay.attacks.vertical.attack import VerticalAttack
from fedassay.defenses.defense import Defense
from fedassay.defenses.transfer.defense import TransferDefense
from fedassay.defenses.vertical.defense import VerticalDefense
from fedassay.suites.config.part_files import own_parts

_OF_CLIENTS = {"defense": Defense, "attack": Attack}
_OF_PARTIES = {"defense": VerticalDefense, "attack": VerticalAttack}
_OF_TEACHERS = {"defense": TransferDefense, "attack": VoteAttack}


def parts_by_name(kind):
    """Those of federations of clients."""
    return _derived_from(_OF_CLIENTS[kind], kind)


def vertical_parts(kind):
    """Those of vertical federations."""
    return _derived_from(_OF_PARTIES[kind], kind)


def transfer_parts(kind):
    """Those of transfers by answers."""
    return _derived_from(_OF_TEACHERS[kind], kind)


def _derived_from(base, kind):
    return {name: part for name, part in all_parts(kind).items() if issubclass(part, base)}


def all_parts(kind):
    return {name: part.load() for name, part in own_parts(kind).items()}
