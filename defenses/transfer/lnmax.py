"""PATE with Laplace noise on the vote counts (LNMax; Papernot et al. 2017)."""

from ...fl.transfer.task import TransferPlan
from ..accounting.accountant import ACCOUNTANT
from ..accounting.gaussian import profile_of
from ..accounting.pure import BASIC_COMPOSITION
from ..accounting.votes import laplace_event, laplace_scale
from .defense import BudgetedTransfer, LaplaceMax, NoisyVotes, PreparedTransfer


class LNMax(BudgetedTransfer):
    """A defense that releases the label of the largest vote count after Laplace noise of scale b on every count.

    One label is (2 / b, 0)-DP: a teacher that votes otherwise changes two counts by one each (the paper's gamma is
    1 / b, its epsilon per label 2 gamma). All labels together are accounted whatever the votes are: by the sum at delta
    0, otherwise by the privacy-loss distributions of the two noised counts, if that needs less noise. The paper's
    data-dependent moments accountant gives smaller numbers, which depend on private votes and are no claims.

    Args:
        epsilon, delta: budget of all labels together; delta may be 0.
    """

    pure = True

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        scale = laplace_scale(epsilon=self.epsilon, delta=self.delta, labels=plan.queries)
        # At the scale of the sum of epsilons the curve of the losses would promise less than the claim.
        by_losses = self.delta > 0 and scale < 2 * plan.queries / self.epsilon
        claims = self.label_claims(
            mechanism="Laplace noise on vote counts, largest count released",
            parameters={"scale": scale, "queries": plan.queries},
            accountant=ACCOUNTANT if by_losses else BASIC_COMPOSITION,
            source="Papernot et al. 2017, Section 2.1; data-independent composition",
            curve=profile_of(laplace_event(scale, plan.queries), self.epsilon) if by_losses else None,
        )
        return PreparedTransfer(protection=NoisyVotes(noise=LaplaceMax(scale)), claims=claims)
