"""Outlook: what a planned run would do, before it does it."""

from ...audit.binomial import largest_certifiable_epsilon
from ..audits.one_run import best_case, guesses_on, guesses_planned
from ..audits.power import designed_tests, detectable_epsilon, replicas_needed
from ..jobs.audited_federation import claimed_release
from ..jobs.cells import AttackAudit, AuditCell, ShadowJob, TrialJob
from ..jobs.crafted_reports import report_law, witness
from ..jobs.queried_lots import WITNESS as QUERIED
from ..jobs.queried_lots import audited_law
from .run_plan import RunPlan


def headline(plan: RunPlan) -> str:
    """One line: how much there is to do."""
    if plan.mutants and not plan.trials:
        return (
            f"{len(plan.mutants)} mutants and their twins, {len(plan.mutants[0].seeds)} seeds; {len(plan.cells)} cells"
        )
    facts = [trial.cells[0].facts for trial in plan.trials]
    defenses = len(dict.fromkeys(fact["defense"] for fact in facts))
    jobs: tuple[TrialJob | ShadowJob, ...] = (*plan.trials, *plan.shadows)
    observing = [cell.facts for job in jobs for cell in job.cells]
    attacks = {fact["attack"] for fact in observing if fact["role"] != "utility"}
    shadows = sum(job.count for job in plan.shadows)
    seeds = len({trial.seed for trial in plan.trials})
    replicas = sum(block.runs for block in plan.blocks)
    return (
        f"{defenses} defenses x {len(attacks)} attacks, {seeds} seeds: {len(plan.trials)} federations"
        f"{f', {shadows:,} shadows' if shadows else ''}; "
        f"{len(plan.audits)} audits on {replicas:,} replicas"
        f"{f', {len(plan.by_attacks)} by attacks' if plan.by_attacks else ''}; {len(plan.cells)} cells"
    )


def outlook(plan: RunPlan) -> list[str]:
    """What each federation trains, and for every claim how far its audit could see."""
    lines = []
    federations = {trial.cells[0].facts["federation"]: trial for trial in plan.trials}
    for name, trial in federations.items():
        spec, count = trial.federation, sum(t.cells[0].facts["federation"] == name for t in plan.trials)
        lines.append(
            f"train  {name}: {spec.dataset}, {spec.model}, {spec.clients} clients, "
            f"{spec.rounds} round{'s' * (spec.rounds > 1)}, {count} federations"
        )
    lines += [f"mutant {job.name}: {job.broken.facts['federation']}" for job in plan.mutants]
    lines += [line for audit in plan.audits for line in _reach(audit)]
    return [*lines, *(_reach_of_attacks(audit) for audit in plan.by_attacks)]


def _reach(audit: AuditCell) -> list[str]:
    """Ceiling and power of one audit, and what it would take to see half the noise; or why it cannot judge."""
    if audit.beyond:
        return [f"audit  {audit.cell.facts['defense']}: {audit.claim.describe()}: OUT OF SCOPE: {audit.beyond}"]
    trials = sum(block.replicas for block in audit.blocks)
    spec = audit.blocks[0].audit
    size = f"{trials} replicas a world" if spec.canaries is None else f"{spec.canaries} canaries in one run"
    who = f"audit  {audit.cell.facts['defense']}: {audit.claim.describe()}: {size}"
    try:
        release = claimed_release(audit.blocks[0])
    except ValueError as error:
        return [f"{who}, FAILS: {error}"]
    law = report_law(audit.blocks[0])
    if law is not None:
        best = largest_certifiable_epsilon(trials // 2, trials // 2, audit.claim.delta, audit.alpha)
        return [f"{who}, ceiling {best:.2f}, {witness(audit.claim, law)}: threshold by a split"]
    if audited_law(audit.blocks[0]) is not None:
        best = largest_certifiable_epsilon(trials // 2, trials // 2, audit.claim.delta, audit.alpha)
        return [f"{who}, ceiling {best:.2f}, {QUERIED}: threshold by a split"]
    if spec.design == "one_run":
        return [f"{who}, {_reach_of_crowd(audit)}"]
    if release is None:
        alone = "no published law" if spec.canary == "dirac" else f"a {spec.canary} canary"
        return [f"{who}, {alone}: threshold by a split"]
    tests = designed_tests(audit.claim, release, audit.blocks[0].audit, n=trials)
    found = detectable_epsilon(audit.claim, release, tests, n=trials, alpha=audit.alpha)
    reach = f"detectable {found:.2f}" if found is not None else "UNDERPOWERED: no missing noise would show"
    best = largest_certifiable_epsilon(trials, trials, audit.claim.delta, audit.alpha / len(tests))
    told = f"{who}, ceiling {best:.2f}, {reach} (power .9 at alpha {audit.alpha:.2g})"
    needed = replicas_needed(audit.claim, release, share=0.5, alpha=audit.alpha)
    costs = ", ".join(f"{route} {'out of reach' if n is None else f'{n:,}'}" for route, n in needed.items())
    return [told, f"       half the noise would be refuted with power .9 from so many replicas a world: {costs}"]


def _reach_of_attacks(audit: AttackAudit) -> str:
    """How many guesses each attack makes; what they could detect is not known."""
    share = audit.alpha / len(audit.attacks)
    planned = _guesses(guesses_on(audit.claim, audit.candidates, alpha=share))
    attacks = ", ".join(item.entry.label for item in audit.attacks)
    who = f"audit  {audit.cell.facts['defense']}: {audit.claim.describe()}"
    return f"{who}: {audit.candidates} samples in one run, by attacks ({attacks}), {planned}"


def _guesses(planned: dict[str, int]) -> str:
    return " or ".join(f"{made} guesses ({estimator})" for estimator, made in planned.items())


def _reach_of_crowd(audit: AuditCell) -> str:
    planned = _guesses(guesses_planned(audit))
    best = best_case(audit)
    reach = "UNDERPOWERED" if best.detectable is None else f"detectable {best.detectable:.2f}"
    return f"{planned}, ceiling {best.ceiling:.2f}, {reach} (power .9 at alpha {audit.alpha:.2g})"
