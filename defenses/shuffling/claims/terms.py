"""Build the claims of a shuffling defense, or of its baselines without a shuffler, from fields that all its claims
share.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ....audit.claim import Adjacency, Claim, Unit, Value
from ....audit.curve import Curve
from ....audit.observer import SHUFFLED, UPLOADS, Observer
from ....fl.plan import Plan
from ....fl.sampling import Epoch, Full, Sampling
from ...accounting.accountant import ACCOUNTANT
from ...accounting.counts import least_epsilon
from ...accounting.pld_convolution import Profile, many_curve, many_epsilon
from ..mechanisms.budgeted import CoordinateNoise

ACCOUNTED = f"{ACCOUNTANT}, by connected dots"
ACCOUNTED_AS_PUBLISHED = "numerical clones, advanced composition"
EXACT_RELEASE = "exact, one release"
LEAST_EPSILON = 1e-9
"""A claim's epsilon must be above 0, also where 0 would suffice at its delta."""
# Beyond this epsilon a curve has no point that an error rate could reach.
_DRAWN = 150.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The fields that all claims of one defense share, such as plan, adversary, mechanism, public parameters, trust
    assumption and source.

    Args:
        spending: how many numbers of a report spend a budget each; None: all.
    """

    plan: Plan
    observer: Observer
    mechanism: str
    radius: float
    trust: str
    source: str
    spending: int | None = None

    @property
    def releases(self) -> int:
        """Return the number of coordinates, over all rounds in which a client takes part, that each spend a privacy
        budget.
        """
        return (self.spending or self.plan.layout.dim) * self.plan.participations

    def joint(
        self,
        release: Profile,
        *,
        delta: float,
        failure: float = 0.0,
        epsilon: float | None = None,
        subjects: str = "all",
        **parameters: Value,
    ) -> Claim:
        """Return the claim about all coordinates of all rounds together; it states the given ``epsilon``, or the
        smallest valid one if none is given.
        """
        # A calibrated claim states its target and not the slightly smaller value that the search reached.
        spent = epsilon or many_epsilon(release, releases=self.releases, delta=delta - failure)
        found = max(spent, LEAST_EPSILON)
        curve = None
        # A curve over very large epsilons would only contain points that no audit can reach.
        if found <= _DRAWN:
            curve = many_curve(release, releases=self.releases, reach=found, failure=failure)
        return self.stated(
            unit=Unit.CLIENT if self.observer == SHUFFLED else Unit.REPORT,
            epsilon=found,
            delta=delta,
            accountant=ACCOUNTED,
            subjects=subjects,
            curve=curve,
            parameters={"releases": self.releases, **parameters},
        )

    def coordinate(
        self, release: Profile, *, delta: float, failure: float = 0.0, subjects: str = "all", **parameters: Value
    ) -> Claim:
        """Return the claim about one coordinate in one round."""
        return self.stated(
            unit=Unit.COORDINATE,
            epsilon=least_epsilon(release.delta, delta - failure),
            delta=delta,
            accountant=EXACT_RELEASE,
            subjects=subjects,
            parameters=parameters,
        )

    def published(
        self,
        *numbers: tuple[Unit, float, float, float],
        parameters: Mapping[str, Value],
        accountant: str = ACCOUNTED_AS_PUBLISHED,
    ) -> tuple[Claim, ...]:
        """Return a paper's own claims, one for each given unit, epsilon and delta; each also states the epsilon that
        can be proved.
        """
        return tuple(
            self.stated(
                unit=unit,
                epsilon=epsilon,
                delta=delta,
                accountant=accountant,
                parameters={**parameters, "provable_epsilon": provable},
            )
            for unit, epsilon, delta, provable in numbers
        )

    def stated(
        self,
        *,
        unit: Unit,
        epsilon: float,
        delta: float,
        accountant: str,
        parameters: Mapping[str, Value],
        subjects: str = "all",
        curve: Curve | None = None,
    ) -> Claim:
        """Return a claim with the given epsilon and delta. If ``unit`` is `Unit.COORDINATE`, the claim covers one
        coordinate of a client's report in one round; otherwise it covers the client's whole reports of all rounds.
        """
        single = unit is Unit.COORDINATE
        return Claim(
            epsilon=max(epsilon, LEAST_EPSILON),
            delta=delta,
            unit=unit,
            adjacency=Adjacency.REPLACE_ONE,
            observer=self.observer,
            rounds=1 if single else self.plan.rounds,
            dp_model="local" if self.observer == UPLOADS else "shuffle",
            mechanism=self.mechanism,
            parameters={
                "radius": self.radius,
                # Also under the name that reports and audits read for all defenses.
                "clip_norm": self.radius,
                "clients": self.plan.clients,
                **parameters,
            },
            accountant=accountant,
            sampling=_assumed(self.plan.cohort),
            trust=self.trust,
            source=self.source,
            subjects=subjects,
            part="one coordinate" if single else "joint",
            curve=curve,
        )


def _assumed(cohort: Sampling) -> str:
    if isinstance(cohort, Epoch):
        return f"each client takes part in one of every {cohort.rounds} rounds, drawn independently of the data"
    return "none assumed" if isinstance(cohort, Full) else "cohorts are Poisson samples"


def local_terms(plan: Plan, radius: float, *, noise: str = CoordinateNoise.CLIP_LAPLACE) -> Terms:
    """Return the fields that all claims of a defense without a shuffler share."""
    classic = noise == CoordinateNoise.LAPLACE
    return Terms(
        plan=plan,
        observer=UPLOADS,
        mechanism="Laplace noise on each coordinate" if classic else "clip-Laplace on each coordinate",
        radius=radius,
        trust="nobody",
        source=f"{'Dwork et al. 2006' if classic else 'Liu et al. 2023'}, Theorem 1; Zhu, Dong, Wang 2022, Theorem 10",
    )
