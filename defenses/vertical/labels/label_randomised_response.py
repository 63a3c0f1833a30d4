"""The active party trains on labels drawn by randomised response (Ghazi et al. 2021; Kairouz et al. 2016)."""

from ....fl.vertical.protection import Noised, VerticalLaw, VerticalPlan
from ..defense import ChannelProtection, RandomisedLabels, VerticalPrepared, response_channel


class LabelRandomisedResponse(RandomisedLabels):
    """A defense for label DP: the active party replaces each label, keeping it with probability e^eps / (e^eps + k - 1)
    and otherwise drawing one of the other k - 1 classes, and trains on the result as if it were the label.

    The claims: one person's label, over the whole training, against a passive party and against the public that
    receives the final models. All messages and models are computed from the drawn labels, so nothing else is paid.
    Drawn once, labels have the same epsilon after any number of epochs; redrawn, their epsilon adds up over the epochs.
    A label that is uniform over the classes is guessed with probability at most e^eps / (k - 1 + e^eps).

    Args:
        epsilon, delta: the budget; delta is useful for redrawn labels alone.
        redraw: whether labels are drawn anew in every epoch.
    """

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        classes, releases = plan.network.classes, self.releases(plan)
        each = self.each_of(releases)
        channel = response_channel(each, classes)
        return self.stated(
            plan,
            ChannelProtection(channel=channel, redraws=self.redraw),
            VerticalLaw(noised=Noised.TARGETS, channel=channel, releases=releases),
            mechanism="randomised response on labels",
            parameters={"classes": classes, "label_epsilon": each, "releases": releases},
            accountant=self.accountant,
            source="Ghazi et al. 2021; Kairouz, Bonawitz, Ramage 2016, equation 3",
            each=each,
            once=not self.redraw,
        )
