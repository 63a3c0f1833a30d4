"""The text of a suite of one federation, and of its tables of parts."""

import json
from typing import Any

Fields = dict[str, Any]


def _value(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value)


def _table(head, fields):
    return "".join([head, *(f"{name} = {_value(value)}\n" for name, value in fields.items()), "\n"])


def tables(*, audit=None, **kinds):
    """defenses={label: fields}, attacks={label: fields}, audit=fields -> one table each."""
    parts = [_table(f"[{kind}.{label}]\n", fields) for kind, each in kinds.items() for label, fields in each.items()]
    return "".join(parts) + ("" if audit is None else _table("[audit]\n", audit))


def suite_text(more="", *, name="mine", seeds=1, alpha=0.01, **federation):
    """A suite of a federation with these fields, followed by ``more``."""
    main = {"model": "logistic", "rounds": 1, "algorithm": {"name": "fedsgd", "learning_rate": 0.5}} | federation
    head = {"name": name, "seeds": seeds, "alpha": alpha}
    return _table("", head) + _table("[federations.main]\n", main) + more


ONE_UPLOAD = {"clients": 3, "samples": 3, "partition": "one_sample", "rounds": 1, "calibrated_on": "main"}
ONE_UPLOAD |= {"model": "logistic", "algorithm": {"name": "fedsgd", "learning_rate": 0.5}}
# In place of the small suite's undefended table: a second federation, which shows one upload.
SHOWN = tables(federations={"shown": ONE_UPLOAD}) + "[defenses.none]"
