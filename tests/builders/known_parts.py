"""Every defense or attack of the package, imported."""

from fedassay.attacks.attack import Attack
from fedassay.attacks.transfer.vote_attack import VoteAttack
from fedassay.attacks.vertical.attack import VerticalAttack
from fedassay.defenses.defense import Defense
from fedassay.defenses.transfer.defense import TransferDefense
from fedassay.defenses.vertical.defense import VerticalDefense
from fedassay.fl.algorithms import BoundedUpdate, FedSGD, Scaffold
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.suites.config.part_files import own_parts
from toy_federation import toy_plan

_OF_CLIENTS = {"defense": Defense, "attack": Attack}
_OF_PARTIES = {"defense": VerticalDefense, "attack": VerticalAttack}
_OF_TEACHERS = {"defense": TransferDefense, "attack": VoteAttack}
_BOUNDED = BoundedUpdate(learning_rate=0.2, local_steps=2, mu=0.1, radius=1.0)
_ALGORITHMS = {
    "blur_lus": _BOUNDED,
    "regularised_sparsified": _BOUNDED,
    "dp_scaffold": Scaffold(learning_rate=0.2, local_steps=2),
}


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


def plan_of_part(name, task, **changes):
    """A plan of a task on which the defense of this name can be prepared."""
    lot = FixedSize(1) if name == "cldp_sgd" else Poisson(0.3)
    fields = {"lot": lot, "algorithm": _ALGORITHMS.get(name, FedSGD(learning_rate=0.5))}
    return toy_plan(task, **(fields | changes))
