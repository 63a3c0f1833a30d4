"""Compute likelihood ratios of the worst-case (DP) adversary, who knows all but whether a candidate is a member."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ...attacks.attack import Hypotheses
from ...attacks.membership.candidates import RoundRows, rounds_of
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, UPLOADS
from ...fl.candidates import PlantedCandidates
from ...fl.channels import changes_broadcast
from ...fl.hooks import overrides
from ...fl.laws import GaussianLaw, Law, Mixing, ReportLaw
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.recorder import LotRecorder, View
from ...fl.sampling import FixedSize
from ...fl.task import Task

_NO_NOISE = 1e-12
"""Standard deviation assumed for a release without noise, so that log ratios stay finite."""

HypothesesOf = Callable[[int, int, slice], Hypotheses]


def worst_case_hypotheses(
    task: Task,
    plan: Plan,
    protection: Protection,
    lots: Mapping[int, LotRecorder],
    view: View,
    planted: PlantedCandidates,
) -> HypothesesOf | None:
    """Return a function of (round, client, candidates). For each candidate this function computes the log-likelihood
    ratio (member against non-member) of what the round releases.

    Each ratio compares the release with a candidate to the release without it.

    The adversary knows every drawn lot and its other samples. ``lots`` are those of the candidates' clients, or of all
    clients where only their sum is observed.

    Returns None where the release is not noise around a known value: the defense publishes no law; there are several
    local steps (the models between them are hidden), an algorithm whose clients keep a state, lots of fixed size (the
    other drawn samples would reveal the candidate), a sum over clients that may be absent, mixed reports, or dropout
    (its draws are hidden).
    """
    if plan.algorithm.local_steps != 1 or plan.algorithm.share(view.final_model) or _fixed(plan):
        return None
    if task.network.dropout_rate:
        return None
    known_run = _KnownRun(task=task, plan=plan, protection=protection, lots=lots, view=view, planted=planted)
    if view.observer.rank >= UPLOADS.rank:
        found = [known_run.of_uploads(client) for client in planted.shown.clients]
    elif view.observer.rank in (AGGREGATE.rank, GLOBAL_MODELS.rank):
        found = [known_run.of_sums(client) for client in planted.shown.clients]
    else:
        return None
    known = {client: one for client, one in zip(planted.shown.clients, found, strict=True) if one is not None}
    # Candidates of all clients share one ROC curve, so leaving some of them out could bias it.
    if len(known) < len(found):
        return None
    return lambda number, client, which: known[client](number, client, which)


def _fixed(plan: Plan) -> bool:
    return isinstance(plan.lot, FixedSize) and any(plan.lot.rate(size) < 1 for size in plan.sizes)


@dataclass(frozen=True, kw_only=True)
class _Lot:
    """One client's lot of one round: the samples' gradients ``(n, d)``, and which candidates it contains ``(m,)``."""

    rows: Tensor
    inside: Tensor


@dataclass(frozen=True, kw_only=True)
class _Share:
    """The contribution of each candidate to a sum, ``rows (m, d)``, and the squared norms of the rows ``(m,)``."""

    rows: Tensor
    squares: Tensor


@dataclass(frozen=True, kw_only=True)
class _KnownRun:
    """A run with its truth, and caches of the quantities that several candidates share."""

    task: Task
    plan: Plan
    protection: Protection
    lots: Mapping[int, LotRecorder]
    view: View
    planted: PlantedCandidates
    _totals: dict[tuple[int, int], tuple[Tensor, _Lot]] = field(default_factory=dict)
    _shares: dict[tuple[int, int, GaussianLaw], _Share] = field(default_factory=dict)
    _candidates: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    @cached_property
    def _seen(self) -> dict[int, RoundRows]:
        """The observed rows, by round."""
        return {rows.round: rows for rows in rounds_of(self.view)}

    def of_uploads(self, client: int) -> HypothesesOf | None:
        """Return membership log-likelihood ratios computed from one client's own noisy update; None if the ratios are
        not known exactly.
        """
        law = self.protection.law(UPLOADS, self.plan, client)
        if (own := _of_samples(law)) is not None and self.protection.per_sample:
            return self._by_samples(own)
        of_reports = isinstance(law, GaussianLaw) or (isinstance(law, ReportLaw) and law.mixing is Mixing.NONE)
        if law is None or not of_reports or self.protection.per_sample:
            return None
        return self._by_reports(law, (client,))

    def of_sums(self, client: int) -> HypothesesOf | None:
        """Return membership log-likelihood ratios computed from the sum of all clients' updates, or from the difference
        of two successive global models; None if the ratios are not known exactly.
        """
        clients = range(self.plan.clients)
        if self.plan.cohort_rate != 1 or changes_broadcast(self.protection):
            return None
        law = self.protection.law(self.view.observer, self.plan, client)
        if isinstance(law, GaussianLaw) and law.scale > 0 and law.rate == 1 and not self.protection.per_sample:
            return self._by_reports(law, clients)
        plain = not any(overrides(self.protection, hook) for hook in ("channel", "aggregate"))
        uploads = [_of_samples(self.protection.law(UPLOADS, self.plan, one)) for one in clients]
        laws = [law for law in uploads if law is not None]
        known = plain and self.protection.per_sample and len(laws) == len(uploads)
        return self._by_sums(laws, client) if known else None

    def _by_samples(self, law: GaussianLaw) -> HypothesesOf:
        def hypotheses(number: int, client: int, which: slice) -> Hypotheses:
            total, lot = self._total(number, client, law)
            return self._added(self._released(number, client) - total, lot.inside[which], number, which, law)

        return hypotheses

    def _by_sums(self, laws: list[GaussianLaw], client: int) -> HypothesesOf:
        """For the mean of all clients' noisy sums, weighted by their numbers of samples."""
        weights, own = [size / sum(self.plan.sizes) for size in self.plan.sizes], laws[client]
        # Independent noise of several clients: variances add.
        noise = math.hypot(*(weight * law.noise_std for weight, law in zip(weights, laws, strict=True)))
        pooled = replace(own, scale=weights[client] * own.scale, noise_std=noise)

        def hypotheses(number: int, client: int, which: slice) -> Hypotheses:
            totals = [weight * self._total(number, k, laws[k])[0] for k, weight in enumerate(weights)]
            inside = self._total(number, client, own)[1].inside[which]
            noise = self._released(number, client) - torch.stack(totals).sum(0)
            return self._added(noise, inside, number, which, pooled)

        return hypotheses

    def _added(self, noise: Tensor, inside: Tensor, number: int, which: slice, law: GaussianLaw) -> Hypotheses:
        """The hypotheses for candidates added to a sum.

        ``noise (d,)`` is the release minus the noiseless sum, which contains the candidates that are ``inside (m,)``.
        """
        share = self._share(number, which, law)
        # <released - rest, share> - |share|^2 / 2, where the rest is the total minus the shares of those inside.
        along = (share.rows @ noise).double() + (inside.double() - 0.5) * share.squares
        return Hypotheses(log_ratio=along / max(law.noise_std, _NO_NOISE) ** 2, rate=law.rate)

    def _by_reports(self, law: Law, clients: range | tuple[int, ...]) -> HypothesesOf:
        """For noise on whole reports: a candidate changes the mean of its client's lot."""

        def hypotheses(number: int, client: int, which: slice) -> Hypotheses:
            gradients = self._gradients(number, which)
            others = [self._report(number, k, law) for k in clients if k != client]
            lot, model = self._lot(number, client), self._model(number)
            inside, total = lot.inside[which].unsqueeze(1).to(gradients), lot.rows.sum(0)
            without = (total - inside * gradients) / (len(lot.rows) - inside).clamp_min(1)
            having = (total + (1 - inside) * gradients) / (len(lot.rows) + 1 - inside)
            absent, present = (law.contribution(self._update(model, mean)) for mean in (without, having))
            rest = torch.stack([torch.zeros_like(model), *others]).sum(0)
            return Hypotheses(
                log_ratio=_log_ratio(law, self._released(number, client) - rest, absent, present),
                rate=self.plan.lot.rate(self.plan.sizes[client]),
            )

        return hypotheses

    def _report(self, number: int, client: int, law: Law) -> Tensor:
        """(d,), the contribution of another client's report."""
        rows, model = self._lot(number, client).rows, self._model(number)
        return law.contribution(self._update(model, rows.sum(0, keepdim=True) / max(1, len(rows))))[0]

    def _update(self, model: Tensor, directions: Tensor) -> Tensor:
        """A client's update after one step along minus each of ``directions (m, d)``."""
        models, algorithm = model.expand_as(directions), self.plan.algorithm
        return algorithm.update(models, algorithm.step(models, directions, algorithm.start(models))[0])

    def _total(self, number: int, client: int, law: GaussianLaw) -> tuple[Tensor, _Lot]:
        """The noiseless sum ``(d,)`` of one client's lot, and the lot; cached for the candidates of the same round."""
        if (number, client) not in self._totals:
            # Only one round's gradients are kept: those of all rounds would not fit into memory.
            for key in [key for key in self._totals if key[0] != number]:
                del self._totals[key]
            lot = self._lot(number, client)
            self._totals[number, client] = (law.contribution(lot.rows).sum(0), lot)
        return self._totals[number, client]

    def _share(self, number: int, which: slice, law: GaussianLaw) -> _Share:
        """The candidates' contributions; cached for the next client with the same law."""
        key = (number, which.start, law)
        if key not in self._shares:
            rows = law.contribution(self._gradients(number, which))
            self._shares.clear()
            self._shares[key] = _Share(rows=rows, squares=rows.square().sum(1).double())
        return self._shares[key]

    def _released(self, number: int, client: int) -> Tensor:
        """(d,), the observed release of the client, or of the sum over all clients."""
        rows = self._seen[number]
        return rows.values[rows.senders.index(client) if self.view.observer.rank >= UPLOADS.rank else 0]

    def _gradients(self, number: int, which: slice) -> Tensor:
        """(m, d), the candidates' gradients; cached for the next client."""
        # Only the last block is cached: the gradients of all candidates in all rounds would not fit into memory.
        key = (number, which.start)
        if key not in self._candidates:
            shown, model = self.planted.shown, self._model(number)
            images, labels = shown.images[which].unsqueeze(0), shown.labels[which].unsqueeze(0)
            self._candidates.clear()
            self._candidates[key] = self.task.network.sample_gradients(model.unsqueeze(0), images, labels)[0]
        return self._candidates[key]

    def _lot(self, number: int, client: int) -> _Lot:
        masks, model = self.lots[client].lots[number], self._model(number)
        size = self.plan.sizes[client]
        mask = masks[0][0] if masks else torch.zeros(size, dtype=torch.bool)
        drawn = self.task.parts[client][mask]
        rows = self.task.network.sample_gradients(
            model.unsqueeze(0), self.task.images[drawn].unsqueeze(0), self.task.labels[drawn].unsqueeze(0)
        )[0]
        # Candidates of other clients have no place in this lot: their index is only clamped into range, then masked.
        own = torch.from_numpy(self.planted.holder == client)
        places = torch.from_numpy(self.planted.sample).clamp_min(0).clamp_max(size - 1)
        return _Lot(rows=rows, inside=own & mask[places])

    def _model(self, number: int) -> Tensor:
        broadcast = self.view.rounds[number].broadcast
        if broadcast is None:
            raise ValueError(f"the observer's view of round {number} must hold the global model, got none")
        return broadcast[0]


def _log_ratio(law: Law, released: Tensor, absent: Tensor, present: Tensor) -> Tensor:
    """(m,), log likelihood ratio of ``released (d,)`` around ``present (m, d)`` to that around ``absent (m, d)``."""
    if isinstance(law, GaussianLaw):
        # Not the difference of two log densities: these are large sums over all coordinates, and nearly equal.
        along = ((released - (absent + present) / 2) * (present - absent)).double().sum(1)
        return along / max(law.noise_std, _NO_NOISE) ** 2
    seen = released.double()
    return law.log_density(seen, present.double()) - law.log_density(seen, absent.double())


def _of_samples(law: Law | None) -> GaussianLaw | None:
    """The law, if it is noise on a sum of samples: its scale is negative, as gradients are subtracted in an update."""
    return law if isinstance(law, GaussianLaw) and law.scale < 0 else None
