"""Carry out ``fedassay audit``: read the scores or import the function, state the claim, audit it, print the result."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..adapters.kept_runs import MOST_BY_DEFAULT, KeptRuns, KeptTraining, RunFailed
from ..adapters.target import find_function, find_object, is_runner, missing_parts, read_input, read_json
from ..audit.arrays import IntArray
from ..audit.claim import Claim
from ..audit.evidence import Design, checked_scores
from ..audit.finding import Finding, Verdict, accept_weak, not_audited, not_run
from ..audit.mechanism.mechanism import DEFAULT_TRIALS, FEWEST, audit_mechanism, audit_outputs
from ..audit.metrics import MembershipResult
from ..audit.supplied.chosen import EstimatorOptions, chosen, options_of
from ..audit.supplied.given import ONE_PER_CLUSTER, check_alpha, check_copies, cluster_numbers, direction_test
from ..audit.supplied.power import reach, too_few_trials, trials_text
from ..audit.supplied.scores import audit_one_run, audit_scores, check_split
from ..audit.wording import plain
from ..suites.config.source import ConfigError
from ..suites.results.outcome import Outcome, judge_finding
from .console import print_lines
from .errors import end_at_once, exit_code, fail, with_config_errors, word
from .printing import write_page
from .score_files import SUFFIXES, ScoreColumns, ScoreTable, is_score_file, read_scores

if TYPE_CHECKING:
    from ..adapters.runner import Runner


_ASSUMED = {"unit": "report", "adjacency": "replace_one", "observer": "uploads"}
_OF_DPSGD = {"unit": "sample", "adjacency": "add_remove", "observer": "uploads"}
"""What is assumed of a claim of DP-SGD, whose accountants state one sample under add/remove."""
_OF_SCORES = {"unit": "sample", "adjacency": "add_remove", "observer": "final_model"}
"""What is assumed of a claim that scores judge, which mostly are losses of samples under a trained model."""


def stated_claim(
    *,
    scores: bool,
    epsilon: float | None,
    delta: float | None,
    mu: float | None,
    rho: float | None,
    noise_multiplier: float | None,
    sampling_rate: float | None,
    steps: int | None,
    rounds: int,
    **setting: str | None,
) -> tuple[Claim, dict[str, str]]:
    """Return the claim, and which of its parts were assumed because no option stated them.

    Raises:
        ConfigError: options that state no claim, several claims, or one that contradicts itself.
    """
    default = _OF_SCORES if scores else _ASSUMED if noise_multiplier is None else _OF_DPSGD
    assumed = {name: value for name, value in default.items() if setting[name] is None}
    fields: dict[str, Any] = {name: value for name, value in setting.items() if value is not None} | assumed
    fields |= {"epsilon": epsilon, "delta": delta or 0.0, "rounds": rounds}
    if scores and delta is None and epsilon is not None:
        assumed["delta"] = "0"
    laws = {"--mu": mu, "--rho": rho, "--noise-multiplier": noise_multiplier}
    if len(given := [name for name, value in laws.items() if value is not None]) > 1:
        raise ConfigError(f"the law of a claim can be stated only once, got {' and '.join(given)}")
    if rho is not None:
        # Loads dp-accounting, which no other claim needs.
        from ..defenses.accounting.stated_laws import claim_from_rho

        return claim_from_rho(rho, **fields), assumed
    if noise_multiplier is not None:
        from ..defenses.accounting.stated_laws import claim_from_noise

        rate, count = 1.0 if sampling_rate is None else sampling_rate, 1 if steps is None else steps
        return claim_from_noise(noise_multiplier, sampling_rate=rate, steps=count, **fields), assumed
    for name, value in (("--sampling-rate", sampling_rate), ("--steps", steps)):
        if value is not None:
            raise ConfigError(f"{name} describes the noise of DP-SGD: give --noise-multiplier as well")
    if epsilon is None and mu is None:
        raise ConfigError(
            "a claim must state epsilon or mu, got neither: give --epsilon, --mu, --rho or --noise-multiplier"
            + ("" if scores else " (a system states its own claim; this is audited as a function of x and rng)")
        )
    return Claim.stated(mu=mu, **fields), assumed


_SCORES, _FUNCTION = "a file of scores", "a mechanism"
_ONLY_SCORES = (
    *("threshold", "independent_runs", "one_run", "fixed_split", "included", "clusters", "higher", "lower"),
    *("columns", "score", "is_member", "member", "nonmember", "dimension", "guesses"),
)
_DESIGNS = {
    Design.INDEPENDENT: "independent runs, each with its own noise (stated, not tested)",
    Design.ONE_RUN: "one run, in which an independent fair coin included each canary (stated, not tested)",
    Design.CLUSTERED: f"clustered scores: {ONE_PER_CLUSTER} (stated, not tested)",
    Design.FIXED_SPLIT: "samples of one model whose members were not drawn by coins: no bound on epsilon follows",
}
_ALL_COUNT = "; all scores count with --one-run as well, if the coins of membership were fair"
_SEVERAL_RUNS = "several runs, in each of which an independent fair coin included each canary (stated, not tested)"
_LAYOUTS = "columns score and is_member, or member and nonmember"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What ``fedassay audit`` prints about one audit besides its finding.

    ``assumed``: the parts of the setting that were not stated; ``plan``: what the evidence can show at best;
    ``attack``: measures how well scores distinguish members, and says of what its intervals are and what a score means.
    """

    target: str
    design: str
    plan: str
    assumed: Mapping[str, str]
    attack: "Callable[[], Attack | None]" = lambda: None

    @property
    def assumption(self) -> str:
        """The assumed parts in words, after a comma; empty where every part was stated."""
        words = ", ".join(f"{name} {value}" for name, value in self.assumed.items())
        return words and f", except what was assumed because no option states it ({words})"

    def lines(self, finding: Finding, gate: Outcome, *, as_json: bool) -> list[str]:
        """Return the lines to print: claim, setting, evidence and verdict, as text or as one JSON object."""
        if as_json:
            claim = None if finding.claim is None else finding.claim.to_dict()
            facts: dict[str, Any] = {"target": self.target, "claim": claim, "finding": finding.to_dict()}
            facts |= {
                "exit_code": gate.exit_code,
                "design": self.design,
                "assumed": {**self.assumed},
                "plan": self.plan,
            }
            if shown := self.attack():
                facts |= {"attack": shown[0].rows, "attack_about": shown[1]}
            return [json.dumps(facts, indent=1, allow_nan=False)]
        lines = [f"claim  {self.target}  {finding.line()}"]
        if self.assumed:
            words = ", ".join(f"{name} {value}" for name, value in self.assumed.items())
            options = ", ".join(f"--{name}" for name in self.assumed)
            lines.append(f"assume {words}, because {options} {'was' if len(self.assumed) == 1 else 'were'} not given")
        lines.append(f"design {self.design}")
        if shown := self.attack():
            lines += [f"attack {shown[0].line()}", *(f"       {words}" for words in shown[1])]
        if (measured := finding.measurement) is not None:
            seen = (
                f"{measured.estimator}, {measured.trials}, alpha {plain(measured.alpha)}, {measured.threshold_policy}"
            )
            lines.append(f"seen   {seen}; {measured.witness}")
        return [*lines, f"gate   {gate.verdict_line} (exit code {gate.exit_code})"]


Attack = tuple[MembershipResult, tuple[str, ...]]
Audit = tuple[Report, Callable[[], Finding]]
"""What is printed besides the finding, and the audit itself."""


def carry_out(target: str, given: Mapping[str, Any]) -> int:
    """Audit scores or a function under the options ``given``, print the result, and return the exit code.

    Raises:
        ConfigError: options that contradict each other or do not fit the target, or evidence that cannot be judged.
    """
    names = ("epsilon", "delta", "mu", "rho", "noise_multiplier", "sampling_rate", "steps", "rounds")
    setting = ("unit", "adjacency", "observer")
    stated = {name: given[name] for name in (*names, *setting)}
    scores, none = is_score_file(target), {"rounds": 1}
    claim, assumed = None, dict[str, str]()
    if not scores and ":" not in target:
        raise ConfigError(
            f"cannot audit {target!r}: the target must be a file of scores ({', '.join(SUFFIXES)}; {_LAYOUTS}), or a "
            "function or system, package.module:name or path/to/file.py:name"
        )
    if not scores or any(value != none.get(name) for name, value in stated.items()):
        claim, assumed = with_config_errors(target, lambda: stated_claim(scores=scores, **stated))
    report, audit = with_config_errors(target, lambda: prepared(target, claim, assumed, given))
    if not given["json"]:
        print_lines(f"plan   {report.plan}")
    finding = with_config_errors(target, audit)
    finding = accept_weak(finding) if given["accept_weak"] else finding
    gate = judge_finding(target, finding)
    for line in report.lines(finding, gate, as_json=given["json"]):
        print_lines(*line.split("\n"))
    if given["html"] is not None:
        lines = [f"plan   {report.plan}", *report.lines(finding, gate, as_json=False)]
        shown: dict[str, Any] = {"finding": finding, "attack": report.attack(), "lines": lines, "rests": report.design}
        tested = "the scores of this file, whatever made them" if scores else "this function itself, not a simulation"
        shown["stated_by"] = f"Stated by the options of this command{report.assumption}; tested: {tested}."
        write_page(given["html"], target, claim, gate, as_json=given["json"], **shown)
    return gate.exit_code


def stated_system(target: str, given: Mapping[str, Any]) -> "Runner | None":
    """Return the foreign system that the target names, where no option states a claim or inputs: a system has its own.

    Raises:
        ConfigError: options that do not belong to a system.
    """
    stating = ("epsilon", "mu", "rho", "noise_multiplier", "inputs")
    if ":" not in target or is_score_file(target) or any(given[name] is not None for name in stating):
        return None
    system = find_system(target)
    if system is not None:
        check_alpha(given["alpha"])
        _refuse(target, given, _ONLY_SCORES, _SCORES)
        _refuse(target, given, ("batched", "low_bits"), _FUNCTION)
        stated = ("sampling_rate", "steps", "unit", "adjacency", "observer", "estimator", "deviation")
        _refuse(target, {**given, "estimator": given["estimator"] or None}, stated, f"{_SCORES} or {_FUNCTION}")
        if given["delta"] or given["rounds"] != 1:
            raise ConfigError(f"{target} is a system, which states its own claim: leave out --delta and --rounds")
    return system


def find_system(target: str) -> "Runner | None":
    """Return the system that ``module:name`` or ``file.py:name`` names, or that the named function without arguments
    returns.

    None for anything else, such as a mechanism. Raises ConfigError where the name cannot be imported, and for a class
    or an object with a method ``run`` that lacks other members of a system.
    """
    found = with_config_errors(target, lambda: find_object(target))
    if is_runner(found):
        return found  # type: ignore[no-any-return]
    try:
        made = with_config_errors(target, found) if callable(found) and _takes_nothing(found) else found
    except ConfigError as error:
        raise ConfigError(f"{target} makes no system: {error}") from None
    if is_runner(made):
        return made  # type: ignore[no-any-return]
    if callable(getattr(made, "run", None)):
        lacks = " and ".join(missing_parts(made))
        why = "it is a class: make an object of it" if isinstance(made, type) else f"it lacks {lacks}"
        raise ConfigError(f"{target} has a method run, and is no system: {why}")
    return None


def _takes_nothing(found: Any) -> bool:
    if isinstance(found, type):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def prepared(target: str, claim: Claim | None, assumed: Mapping[str, str], given: Mapping[str, Any]) -> Audit:
    """Prepare the audit of this target under the options ``given``; also return what its evidence can show at best.

    ``claim``: None of scores alone, of which AUC and TPR are of interest without one.

    Raises:
        ConfigError: an unknown kind of target, options that do not belong to it, or scores that cannot be judged.
    """
    check_alpha(given["alpha"])
    if is_score_file(target):
        return _scores(target, claim, assumed, given)
    assert claim is not None
    return _function(target, claim, assumed, given)


def _scores(target: str, claim: Claim | None, assumed: Mapping[str, str], given: Mapping[str, Any]) -> Audit:
    end_at_once()
    _refuse(target, given, ("inputs", "trials", "batched", "low_bits", "keep", "jobs"), _FUNCTION)
    if claim is None:
        judging = {name: given[name] or None for name in ("estimator", "accept_weak")}
        _refuse(target, {**given, **judging}, ("threshold", "deviation", "dimension", "guesses", *judging), "a claim")
    design = _design(given)
    _refuse_columns(target, given, design)
    names = ScoreColumns.stated(
        target,
        score=given["score"],
        is_member=given["included"] or given["is_member"],
        member=given["member"],
        nonmember=given["nonmember"],
        clusters=given["clusters"],
        unnamed=given["columns"],
    )
    table = read_scores(Path(target), names, one_class=bool(given["one_run"] and given["estimator"] == ["one_shot"]))
    if design not in (None, Design.FIXED_SPLIT) and table.design not in (None, design.value):
        raise ConfigError(f"{target} records the design {table.design}, and the options state {design.value}")
    # Without a claim nothing is at stake, and intervals for one model alone hold whatever the design.
    chosen = design or (Design.FIXED_SPLIT if claim is None else _recorded(target, table))
    direction = _direction(given)
    common: dict[str, Any] = {
        "higher_is_member": direction,
        "estimator": given["estimator"] or None,
        "alpha": given["alpha"],
        "seed": given["seed"],
    }
    words = _DESIGNS[chosen] + ("" if design or claim else " (assumed, because no design was stated)")
    counts = len(table.member), len(table.nonmember)
    named = given["estimator"] not in (None, [], ["one_run"])
    options: dict[str, Any] = {"alpha": given["alpha"], "fixed": given["threshold"] is not None, "named": named}
    report = Report(
        target=target,
        design=_SEVERAL_RUNS if chosen is Design.ONE_RUN and table.clusters else words,
        plan=f"{counts[1]} + {counts[0]} scores" if claim is None else reach(claim, chosen, *counts, **options),
        assumed=assumed,
        attack=cache(partial(_attack, table, chosen, direction)),
    )

    def audit() -> Finding:
        try:
            if claim is None or chosen is Design.FIXED_SPLIT:
                sides = (checked_scores("scores", side) for side in (table.member, table.nonmember))
                check_copies(*sides, design=Design.ONE_RUN)
            if claim is None:
                report.attack()  # Now, because names of runs may be missing.
                return not_audited(None, "no claim was stated (--epsilon), so none was judged")
            found = _audit_table(table, claim, chosen, common, given)
            more = _ALL_COUNT if chosen is Design.CLUSTERED and found.verdict is Verdict.UNDERPOWERED else ""
            return replace(found, reason=f"{found.reason}{more}")
        except ValueError as error:
            raise ConfigError(f"{target} (columns {' and '.join(table.columns)}): {error}") from None

    return report, audit


def _refuse_columns(target: str, given: Mapping[str, Any], design: Design | None) -> None:
    """Refuse options that are for scores of another design."""
    if design is Design.ONE_RUN:
        _refuse(target, given, ("threshold", "deviation"), "independent runs")
    else:
        _refuse(target, given, ("included", "dimension", "guesses"), "--one-run")
    if given["included"] is not None and given["is_member"] is not None:
        raise ConfigError(
            "the column that names the members can be named only once, got --included and --is-member: leave one out"
        )


def _attack(table: ScoreTable, design: Design, higher_is_member: bool | None) -> Attack | None:
    """How well the scores distinguish members; None of rows and of scores of members alone."""
    member, nonmember, runs = table.member, table.nonmember, tuple[IntArray, ...]()
    if member.ndim > 1 or not len(nonmember):
        return None
    if higher_is_member is False:
        member, nonmember = -member, -nonmember
    if table.clusters is None:
        member, nonmember = np.sort(member), np.sort(nonmember)  # In their order they are compared much faster.
    else:
        numbers = cluster_numbers(np.concatenate(table.clusters), len(member) + len(nonmember))
        runs = (numbers[: len(member)], numbers[len(member) :])
    alone = design in (Design.ONE_RUN, Design.FIXED_SPLIT) and not runs
    about = [f"95 % intervals over {'samples, for this one model alone' if alone else 'runs'}"]
    about[0] += f"; a {'low' if higher_is_member is False else 'high'} score means member"
    about[0] += " (assumed)" if higher_is_member is None else ""
    if direction_test(member, nonmember).reversed:
        other = "--higher-is-member" if higher_is_member is False else "--lower-is-member"
        about.append(
            f"WARNING: the AUC is below 0.5: members score as non-members should; {other} reverses the direction"
        )
    return MembershipResult.of(member, nonmember, *runs), tuple(about)


def _audit_table(
    table: ScoreTable, claim: Claim, design: Design, common: dict[str, Any], given: Mapping[str, Any]
) -> Finding:
    if design is Design.ONE_RUN:
        scores = np.concatenate([table.member, table.nonmember])
        coins = np.arange(len(scores)) < len(table.member)
        runs = None if table.clusters is None else np.concatenate(table.clusters)
        more = {"dimension": given["dimension"], "guesses": given["guesses"], "ordered": False, "runs": runs}
        if table.inside is not None:
            check_split(table.inside)
        return audit_one_run(scores, coins, claim, **common, **more)
    law = _used_law(given, ())
    more = {"threshold": given["threshold"], "deviation": given["deviation"], "clusters": table.clusters}
    return audit_scores(table.member, table.nonmember, claim, design=design, **common, **law, **more)


def _used_law(given: Mapping[str, Any], default: Sequence[str]) -> dict[str, Any]:
    """The claimed law as far as the estimators use it; the options that state it may be given for the claim alone."""
    law = {"sigma": given["noise_multiplier"], "rate": given["sampling_rate"], "steps": given["steps"]}
    names = given["estimator"] or default
    used = options_of(chosen(names, Design.INDEPENDENT, ())) if names else ()
    return {name: value for name, value in law.items() if name in used}


def _function(target: str, claim: Claim, assumed: Mapping[str, str], given: Mapping[str, Any]) -> Audit:
    _refuse(target, given, _ONLY_SCORES, _SCORES)
    mechanism = find_function(target)
    if given["inputs"] is None:
        raise ConfigError(f"{target} needs --inputs X0 X1: two neighbouring inputs as JSON, such as --inputs 0 1")
    x0, x1 = (read_input(text) for text in given["inputs"])
    trials = DEFAULT_TRIALS if given["trials"] is None else given["trials"]
    kept = given["keep"] is not None or given["jobs"] is not None
    options = EstimatorOptions(deviation=given["deviation"], seed=given["seed"], **_used_law(given, ()))
    cheap = given["batched"] or given["low_bits"]
    if kept or (given["trials"] is not None and trials <= MOST_BY_DEFAULT and not cheap):
        return _trained(target, claim, assumed, given, options)
    reached = {"alpha": given["alpha"], "coins": not given["estimator"]}
    report = Report(
        target=target,
        design="independent calls of the function, each with its own generator",
        plan=trials_text(claim, trials, **reached),
        assumed=assumed,
    )
    if hopeless := too_few_trials(claim, trials, **reached):
        return report, lambda: not_run(claim, hopeless)
    return report, lambda: audit_mechanism(
        mechanism,
        claim,
        inputs=(x0, x1),
        seed=given["seed"],
        alpha=given["alpha"],
        batched=given["batched"],
        low_bits=given["low_bits"],
        trials=trials,
        estimator=given["estimator"] or None,
        options=options,
    )


def _trained(
    target: str, claim: Claim, assumed: Mapping[str, str], given: Mapping[str, Any], options: EstimatorOptions
) -> Audit:
    """The audit of a function whose runs take long: every output is kept."""
    _refuse(target, given, ("batched", "low_bits"), "a function whose runs are not kept (--keep)")
    first, second = given["inputs"]
    if read_json(first) == read_json(second):
        raise ConfigError(f"a pair must be two different inputs, got {first} twice, which cannot refute any claim")
    runs = KeptRuns(given["keep"], KeptTraining(target=target, inputs=given["inputs"], seed=given["seed"]))
    if given["trials"] is not None and given["trials"] < 2:
        raise ConfigError(f"trials must be >= 2, got {given['trials']}")
    trials, alpha, estimator = given["trials"] or DEFAULT_TRIALS, given["alpha"], given["estimator"] or None
    # Half of the runs only learn, and the first verdict has half of alpha.
    report = Report(
        target=target,
        design=f"independent runs of the function, each with its own generator, kept in {runs.folder}",
        plan=trials_text(claim, trials // 2, alpha=alpha / 2, learning=trials - trials // 2),
        assumed=assumed,
    )
    if trials < 2 * FEWEST:
        hopeless = f"no trial was run: at least --trials {2 * FEWEST} are needed, since half of them choose the event"
    else:
        hopeless = too_few_trials(claim, trials // 2, alpha=alpha / 2, factor=2)
    if hopeless:
        return report, lambda: not_run(claim, hopeless)

    def audit() -> Finding:
        look = {"trials": trials, "alpha": alpha, "claim": claim.claim_id, "estimator": estimator}
        inputs, show = (read_input(first), read_input(second)), _ignored if given["json"] else print_lines
        with runs.held():
            try:
                out, within = runs.outputs(trials, jobs=given["jobs"] or 1, show=show)
            except KeyboardInterrupt as error:
                kept = f"Finished runs are kept in {runs.folder}; repeat the command to continue"
                fail(f"{word(error)}. {kept}", code=exit_code(error))
            except RunFailed as error:
                fail(str(error), code=1)
            share = runs.share(look, alpha)
            return audit_outputs(out, within, claim, inputs=inputs, alpha=share, estimator=estimator, options=options)

    return report, audit


def _design(given: Mapping[str, Any]) -> Design | None:
    """The stated design; None where none was stated."""
    options = {"independent_runs": Design.INDEPENDENT, "one_run": Design.ONE_RUN, "clusters": Design.CLUSTERED}
    options["fixed_split"] = Design.FIXED_SPLIT
    named = [name for name in options if given[name]]
    if len(named) > 1 and named != ["one_run", "clusters"]:
        words = " and ".join(f"--{name.replace('_', '-')}" for name in named)
        raise ConfigError(f"the scores can have one design only, got {words}")
    return options[named[0]] if named else None


def _recorded(target: str, table: ScoreTable) -> Design:
    """The design that the file records, where the options state none."""
    if table.design == Design.INDEPENDENT.value:
        return Design.INDEPENDENT
    if table.design is not None:
        raise ConfigError(
            f"the scores in {target} are dependent ({table.design}), but an audit needs one score from each of many "
            "independent runs, with and without the audited sample or client"
        )
    raise ConfigError(
        f"state how the scores in {target} depend on each other: --independent-runs (each score is of a run of its "
        "own, with its own noise), --one-run (canaries of one run, each included by a fair coin), --clusters COLUMN "
        "(several scores of each run) or --fixed-split (samples of one model whose members were not drawn by coins: "
        "no claim can be judged)"
    )


def _direction(given: Mapping[str, Any]) -> bool | None:
    if given["higher"] and given["lower"]:
        raise ConfigError("give either --higher-is-member or --lower-is-member, got both")
    return True if given["higher"] else False if given["lower"] else None


def _refuse(target: str, given: Mapping[str, Any], names: tuple[str, ...], kind: str) -> None:
    options = {"higher": "higher-is-member", "lower": "lower-is-member"}
    for name in names:
        # Not by equality: a threshold of 0 equals False.
        if given[name] is not None and given[name] is not False:
            option = options.get(name, name.replace("_", "-"))
            raise ConfigError(f"--{option} can be given only with {kind}, not with {target}")


def _ignored(line: str) -> None:
    """Print nothing."""
