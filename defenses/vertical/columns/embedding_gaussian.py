"""Passive parties clip embeddings to an L2 norm and add Gaussian noise (Dwork et al. 2006; Balle and Wang 2018)."""

from dataclasses import dataclass

from ....audit.claim import Value
from ....fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalPlan
from ...accounting.accountant import ANALYTIC_GAUSSIAN
from ...accounting.gaussian import gaussian_curve, gaussian_noise
from ...defense import Bound, Delta, check_bound
from ..defense import ClaimingVerticalDefense, VerticalPrepared
from .protection import NoisedEmbeddingProtection, check_frozen, embedding_releases


@dataclass(frozen=True, kw_only=True)
class EmbeddingGaussian(ClaimingVerticalDefense):
    """A defense of the passive parties' columns: Gaussian noise on clipped embeddings.

    The claim: one person's columns at one passive party, replaced by any others, over the whole training, against the
    active party; all that it computes and sends back, to other parties too, is post-processing. Any two clipped
    embeddings are up to twice the clip norm apart. A person's embedding is sent once per epoch, or once. Noise on the
    embeddings alone protects the columns only where the bottom models keep their public initial parameters. A bottom
    model that is trained on raw columns carries one person's columns into the embeddings of all others. With
    ``bottom_clip`` the bottom models are trained by DP-SGD (Abadi et al. 2016): each person's gradient is clipped, and
    the sum of a batch gets noise. A person is in one batch per epoch, which is public, and so has two Gaussian releases
    per epoch, at the same noise over the sensitivity; their sum is what the claim states.

    For a prediction, the embedding of a new person gets the same clip and noise. It is a release of its own about that
    person, at the epsilon of one release; the claim is about the training alone.

    Args:
        epsilon, delta: the budget of the whole training, by the analytic Gaussian.
        clip_norm: L2 bound of an embedding.
        sends_once: whether an embedding is sent in the first epoch alone; bottom models must be frozen.
        bottom_clip: L2 bound of a person's gradient by a bottom model's parameters; None: bottom models must be frozen.

    Raises (in prepare):
        ValueError: for trained bottom models without ``bottom_clip`` or with ``sends_once``.
    """

    delta: Delta = 1e-5
    clip_norm: Bound = 1.0
    sends_once: bool = False
    bottom_clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bottom_clip is not None:
            check_bound("bottom_clip", self.bottom_clip)

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        if self.bottom_clip is None:
            check_frozen(plan, "; or set bottom_clip to train them by DP-SGD")
        sends = embedding_releases(plan, sends_once=self.sends_once)
        # A frozen bottom model is not updated, so nothing is released of its gradients.
        bottom = None if plan.frozen else self.bottom_clip
        releases = sends if bottom is None else 2 * sends
        noise = gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=releases)
        scale, bottom_std = noise * 2 * self.clip_norm, noise * 2 * (bottom or 0.0)
        more: dict[str, Value] = {} if bottom is None else {"bottom_clip": bottom, "bottom_std": bottom_std}
        protection = NoisedEmbeddingProtection(
            noise=Noise.GAUSSIAN,
            scale=scale,
            clip_norm=self.clip_norm,
            sends_once=self.sends_once,
            bottom_clip=bottom,
            bottom_std=bottom_std,
        )
        law = VerticalLaw(
            noised=Noised.EMBEDDINGS, noise=Noise.GAUSSIAN, scale=scale, clip=self.clip_norm, releases=sends
        )
        return self.stated(
            plan,
            protection,
            law,
            mechanism="Gaussian noise on clipped embeddings" + (", bottom models by DP-SGD" if bottom else ""),
            parameters={"scale": scale, "clip_norm": self.clip_norm, "releases": sends, **more},
            accountant=ANALYTIC_GAUSSIAN,
            source="Balle and Wang 2018, Theorem 8" + ("; Abadi et al. 2016, Algorithm 1" if bottom else ""),
            curve=gaussian_curve(noise=noise, releases=releases),
            once=self.sends_once,
        )
