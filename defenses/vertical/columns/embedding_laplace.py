"""Passive parties clip embeddings to an L1 norm and add Laplace noise (Dwork, McSherry, Nissim, Smith 2006)."""

from dataclasses import dataclass

from ....fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalPlan
from ...defense import Bound
from ..defense import PureVerticalDefense, VerticalPrepared
from .protection import NoisedEmbeddingProtection, check_frozen, embedding_releases


@dataclass(frozen=True, kw_only=True)
class EmbeddingLaplace(PureVerticalDefense):
    """A defense of the passive parties' columns: Laplace noise on clipped embeddings, which gives a pure epsilon.

    The claim: one person's columns at one passive party, replaced by any others, over the whole training, against the
    active party. Any two clipped embeddings are up to twice the clip norm apart in the L1 norm. A person's embedding is
    sent once per epoch, or once.

    For a prediction, the embedding of a new person gets the same clip and noise. It is a release of its own about that
    person, at the epsilon of one release; the claim is about the training alone.

    Args:
        epsilon, delta: the budget of the whole training.
        clip_norm: L1 bound of an embedding.
        sends_once: whether an embedding is sent in the first epoch alone.

    Raises (in prepare):
        ValueError: for trained bottom models, which would show one person's columns in the embeddings of all others.
    """

    clip_norm: Bound = 1.0
    sends_once: bool = False

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        check_frozen(plan)
        releases = embedding_releases(plan, sends_once=self.sends_once)
        each = self.each_of(releases)
        scale = 2 * self.clip_norm / each
        protection = NoisedEmbeddingProtection(
            noise=Noise.LAPLACE, scale=scale, clip_norm=self.clip_norm, sends_once=self.sends_once
        )
        law = VerticalLaw(
            noised=Noised.EMBEDDINGS, noise=Noise.LAPLACE, scale=scale, clip=self.clip_norm, releases=releases
        )
        return self.stated(
            plan,
            protection,
            law,
            mechanism="Laplace noise on clipped embeddings",
            parameters={"scale": scale, "clip_norm": self.clip_norm, "releases": releases},
            accountant=self.accountant,
            source="Dwork, McSherry, Nissim, Smith 2006, Theorem 1",
            each=each,
            once=self.sends_once,
        )
