"""An observer describes which part of a federated run an adversary sees.

Claims, evidence and the training engine share this one vocabulary.
"""

from dataclasses import dataclass

from .wording import unknown

_PHRASES = {
    "final_model": "the public (final model)",
    "global_models": "other clients (every round's model)",
    "aggregate": "the server that observes only the aggregate",
    "shuffled": "the analyser that observes shuffled reports",
    "uploads": "the server that observes individual updates and who takes part",
    "answers": "the student that observes every released answer",
    "passive_party": "a party without the labels (it receives gradients)",
    "active_party": "the party with the labels (it receives embeddings)",
}
_CENTRAL = {
    "final_model": "the public (final model)",
    "global_models": "a receiver of the model of every step",
}
"""Phrases for a training without clients."""
_ROUNDS = ("final_model", "global_models", "aggregate", "shuffled", "uploads")
_ANSWERS = ("final_model", "answers", "uploads")
"""The observers of a training in rounds and of a transfer by answers, each from the weakest to the strongest."""
_PARTIES = ("passive_party", "active_party")
"""The parties of a vertical federation, of which none sees all that another observer sees."""
_LADDERS = (_ROUNDS, _ANSWERS, *((party,) for party in _PARTIES))
_RANKS = {name: rank for ladder in (_ANSWERS, _ROUNDS) for rank, name in enumerate(ladder)}
_RANKS |= {name: rank for rank, name in enumerate(_PARTIES, start=3)}
_FLAGS = {"participation": "who takes part", "masked_words": "the masked words"}


@dataclass(frozen=True)
class Observer:
    """An adversary, described by the part of a federated run that it observes.

    ``name``, from the strongest observer to the weakest: ``uploads`` (each client's report), ``shuffled`` (the multiset
    of the reports), ``aggregate`` (their sum), ``global_models`` (the model of every round), ``final_model``. Where
    clients answer queries instead of training in rounds: ``uploads`` (each client's answers), ``answers`` (what the
    student is given for every query), ``final_model`` (of the student). In a vertical federation: ``passive_party`` (a
    party without the labels: its own columns and model, the gradients that it is sent), ``active_party`` (the party
    with the labels: its own columns and model, the embeddings that it is sent), ``final_model`` (of all parties).

    The flags add what no name implies: which clients take part in a round, and the masked words of a secure
    aggregation.

    Raises:
        ValueError: for an unknown name.
    """

    name: str
    sees_participation: bool = False
    sees_masked_words: bool = False

    def __post_init__(self) -> None:
        if self.name not in _RANKS:
            raise unknown("observer", self.name, reversed(_PHRASES))

    @classmethod
    def parse(cls, text: str) -> "Observer":
        """Return the observer that a text such as ``"uploads"`` or ``"uploads+participation"`` describes.

        The inverse of ``str``. Raises ValueError for an unknown part.
        """
        if not isinstance(text, str):
            raise ValueError(f"observer must be an Observer or a text such as 'uploads', got {text!r}")
        name, *flags = (part.strip() for part in text.split("+"))
        for flag in flags:
            if flag not in _FLAGS:
                raise unknown("observer flag", flag, _FLAGS)
        return cls(name, sees_participation="participation" in flags, sees_masked_words="masked_words" in flags)

    @staticmethod
    def pattern() -> str:
        """Return a regular expression, without anchors, that matches every text which ``parse`` accepts."""
        return rf" *({'|'.join(_RANKS)}) *(\+ *({'|'.join(_FLAGS)}) *)*"

    def __str__(self) -> str:
        return "+".join((self.name, *self._flags))

    @property
    def rank(self) -> int:
        """The observer's strength, from 4 for ``uploads`` (every client's report) down to 0 for ``final_model``.

        Ranks compare observers of a training in rounds; ``covers`` compares any two.
        """
        return _RANKS[self.name]

    @property
    def phrase(self) -> str:
        """The adversary in words, as a printed claim shows it."""
        extra = " and ".join(_FLAGS[flag] for flag in self._flags)
        return _PHRASES[self.name] + (f", also observing {extra}" if extra else "")

    @property
    def central_phrase(self) -> str:
        """The adversary in words, for a training by one party that holds all data."""
        return _CENTRAL.get(self.name, self.phrase) if not self._flags else self.phrase

    def covers(self, other: "Observer") -> bool:
        """Return whether a claim against this observer covers evidence collected by ``other``: only if ``other`` sees
        no more than this observer.
        """
        ladders = [ladder for ladder in _LADDERS if {self.name, other.name} <= set(ladder)]
        # Flags are compared too: a stronger view alone does not imply, say, the masked words.
        return bool(ladders) and other.rank <= self.rank and set(other._flags) <= set(self._flags)

    @property
    def _flags(self) -> tuple[str, ...]:
        held = {"participation": self.sees_participation, "masked_words": self.sees_masked_words}
        return tuple(flag for flag in _FLAGS if held[flag])


UPLOADS = Observer("uploads")
SHUFFLED = Observer("shuffled")
AGGREGATE = Observer("aggregate")
GLOBAL_MODELS = Observer("global_models")
FINAL_MODEL = Observer("final_model")
ANSWERS = Observer("answers")
PASSIVE_PARTY = Observer("passive_party")
ACTIVE_PARTY = Observer("active_party")
LADDER = (FINAL_MODEL, GLOBAL_MODELS, AGGREGATE, SHUFFLED, UPLOADS)
"""Those of a training in rounds, from the weakest observer to the strongest."""
