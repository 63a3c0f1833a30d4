"""PATE with Gaussian noise on the vote counts (GNMax; Papernot et al. 2018)."""

from ...fl.transfer.task import TransferPlan
from ..accounting.accountant import ANALYTIC_GAUSSIAN
from ..accounting.gaussian import gaussian_curve
from ..accounting.votes import VOTE_L2, label_noise
from .defense import BudgetedTransfer, GaussianMax, NoisyVotes, PreparedTransfer


class GNMax(BudgetedTransfer):
    """A defense that releases the label of the largest vote count after Gaussian noise on every count.

    The claim holds whatever the votes are: a teacher that votes otherwise moves the counts by sqrt 2, and choosing the
    largest is post-processing, so that all labels together are one Gaussian mechanism. The paper composes Renyi
    divergences ``order / sigma^2`` per label, which is the same mechanism and a larger epsilon. The smaller
    data-dependent numbers of the paper are no claims (``GNMaxDataDependent`` publishes them with noise).

    Args:
        epsilon, delta: budget of all labels together, calibrated by the analytic Gaussian.
    """

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        sigma = label_noise(epsilon=self.epsilon, delta=self.delta, labels=plan.queries)
        claims = self.label_claims(
            mechanism="Gaussian noise on vote counts, largest count released",
            parameters={"noise_std": sigma, "queries": plan.queries, "sensitivity": VOTE_L2},
            accountant=ANALYTIC_GAUSSIAN,
            source="Papernot et al. 2018, Section 4.1; composition: Dong et al. 2022, Corollary 3.3",
            curve=gaussian_curve(noise=sigma / VOTE_L2, releases=plan.queries),
        )
        return PreparedTransfer(protection=NoisyVotes(noise=GaussianMax(sigma)), claims=claims)
