"""A recorder that keeps every event whole."""

from typing import Any


class Tape:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def watch(self, event: Any) -> None:
        self.events.append(event)

    def masks(self) -> list[Any]:
        """Everything that was drawn: each round's senders, who was present, and every lot."""
        return [
            (
                event.reports.senders,
                event.reports.present.tolist(),
                {k: [m.tolist() for m in v] for k, v in event.lots.items()},
            )
            for event in self.events
        ]
