"""The innermost mod of client apps: it keeps the update that a client made, and puts the audit's in its place."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .records import added, flat, is_training, only_arrays


@dataclass(kw_only=True)
class InnerMod:
    """A mod of Flower that knows nothing of the server, so that it can be sent to another process.

    Args:
        units: updates of the audit by node, ``(d,)`` in clip norms.
        clip_norm: of the present round; None where no noise is stated, and units stay out.
        made: updates that clients made in the present round by node, ``(d,)``.
    """

    units: dict[int, Tensor] = field(default_factory=dict)
    clip_norm: float | None = None
    made: dict[int, Tensor] = field(default_factory=dict)

    def __call__(self, message: Any, context: Any, call_next: Any) -> Any:
        """Call the client's function; the reply holds the planted update where the node has one."""
        reply = call_next(message, context)
        if not is_training(message) or not reply.has_content():
            return reply
        name, made = only_arrays(reply.content)
        _, received = only_arrays(message.content)
        node = int(context.node_id)
        if node in self.units and self.clip_norm is not None:
            made = added(received, self.units[node] * self.clip_norm)
            reply.content[name] = made
        self.made[node] = flat(made) - flat(received)
        return reply
