"""Define the command ``audit`` (scores, functions and systems), and ``watch``, which runs the checks of a system."""

from pathlib import Path
from typing import Annotated

import typer

from .errors import reported_errors
from .gate_command import AcceptWeak

Target = Annotated[
    str,
    typer.Argument(
        help="Scores (.csv, .tsv, .parquet, .npz, .npy or .json; columns score and is_member, or member and "
        "nonmember), or file.py:name or package.module:name of a function, or of a system of an adapter."
    ),
]
Number = float | None
_option = typer.Option
Epsilon = Annotated[
    Number, _option(help="The claimed epsilon; if left out, it is computed from --mu or --noise-multiplier.")
]
Delta = Annotated[Number, _option(help="The claimed delta, by default 0.")]
Mu = Annotated[Number, _option(help="Claim of mu-GDP: mu, which is sensitivity / noise standard deviation.")]
Rho = Annotated[Number, _option(help="Claim rho-zCDP.")]
NoiseMultiplier = Annotated[
    Number, _option(help="Claim of DP-SGD: noise multiplier, which is noise standard deviation / clip norm.")
]
SamplingRate = Annotated[Number, _option(help="DP-SGD: rate of Poisson sampling, by default 1.")]
Steps = Annotated[int | None, _option(help="DP-SGD: number of noisy steps, by default 1.")]
Unit = Annotated[str | None, _option(help="Unit that is protected: sample, client, user, report, ...")]
Adjacency = Annotated[str | None, _option(help="Neighbouring relation: replace_one, add_remove or zero_out.")]
Observer = Annotated[
    str | None,
    _option(help="What the adversary observes: uploads, shuffled, aggregate, global_models, answers, final_model."),
]
Rounds = Annotated[int, _option(help="Number of rounds that the claim covers.")]
IndependentRuns = Annotated[
    bool, _option("--independent-runs", help="For scores: each score comes from a separate run with independent noise.")
]
OneRun = Annotated[
    bool,
    _option(
        "--one-run",
        help="For scores: all scores are of canaries of one run, in which independent fair coins included canaries.",
    ),
]
FixedSplit = Annotated[
    bool,
    _option(
        "--fixed-split",
        help="For scores: all scores are of samples of one model whose members were not drawn by coins; no bound on "
        "epsilon follows.",
    ),
]
Included = Annotated[
    str | None,
    _option(
        metavar="COLUMN", help="For scores of one run: the name of the column that says which canaries were included."
    ),
]
Clusters = Annotated[
    str | None,
    _option(
        metavar="COLUMN",
        help="For scores: several scores come from each run, which this column names. With --one-run as well, all "
        "scores count.",
    ),
]
Higher = Annotated[bool, _option("--higher-is-member", help="For scores: a high score means member.")]
Lower = Annotated[bool, _option("--lower-is-member", help="For scores: a low score (a loss) means member.")]
Score = Annotated[
    str | None, _option(metavar="COLUMN", help="For scores: the name of the column of scores, by default score.")
]
IsMember = Annotated[
    str | None,
    _option(
        "--is-member",
        metavar="COLUMN",
        help="For scores: the name of the column that says which scores are of members, by default is_member.",
    ),
]
Member = Annotated[
    str | None, _option(metavar="COLUMN", help="For scores: the name of the column of members, by default member.")
]
Nonmember = Annotated[
    str | None,
    _option(metavar="COLUMN", help="For scores: the name of the column of non-members, by default nonmember."),
]
Columns = Annotated[
    str | None,
    _option(metavar="NAMES", help="For scores in a plain .npy array: the names of its columns, with commas."),
]
Estimator = Annotated[
    list[str] | None,
    _option(help="Name of an estimator ('fedassay list estimators'). Repeatable: several share alpha."),
]
Threshold = Annotated[Number, _option(help="For scores: a threshold that was fixed before any score was seen.")]
Deviation = Annotated[Number, _option(help="For scores: their true standard deviation (for the estimator z_test).")]
Dimension = Annotated[
    int | None, _option(help="For cosines of canaries: the number of model parameters (for the estimator one_shot).")
]
Guesses = Annotated[
    int | None, _option(help="For scores of one run: the number of guesses, fixed before any score was seen.")
]
Inputs = Annotated[
    tuple[str, str] | None, _option(metavar="X0 X1", help="For a function: two neighbouring inputs, as JSON.")
]
Trials = Annotated[
    int | None,
    _option(
        help="For a function: trials per input, by default 100,000. For a system: runs per arm, by default planned."
    ),
]
Batched = Annotated[
    bool, _option("--batched", help="For a function: one call makes many trials, and x has one row per trial.")
]
LowBits = Annotated[
    bool, _option("--low-bits", help="For a function: audit the lowest bits of its floating-point outputs.")
]
Keep = Annotated[
    Path | None,
    _option(
        help="For a function or a system: the folder in which every run is kept, so that the audit can be resumed."
    ),
]
Jobs = Annotated[
    int | None,
    _option("-j", "--jobs", min=1, help="For a function or a system: the number of processes, by default 1."),
]
Seed = Annotated[int, _option(min=0, help="Seed of the trials, or of the split of the scores.")]
Alpha = Annotated[float, _option(help="Largest probability of refuting a true claim.")]
Json = Annotated[bool, _option("--json", help="Print JSON.")]
Html = Annotated[Path | None, _option("--html", metavar="FILE", help="Also write an HTML page that shows the result.")]


def audit(
    target: Target,
    epsilon: Epsilon = None,
    delta: Delta = None,
    mu: Mu = None,
    rho: Rho = None,
    noise_multiplier: NoiseMultiplier = None,
    sampling_rate: SamplingRate = None,
    steps: Steps = None,
    unit: Unit = None,
    adjacency: Adjacency = None,
    observer: Observer = None,
    rounds: Rounds = 1,
    independent_runs: IndependentRuns = False,
    one_run: OneRun = False,
    fixed_split: FixedSplit = False,
    included: Included = None,
    clusters: Clusters = None,
    higher: Higher = False,
    lower: Lower = False,
    score: Score = None,
    is_member: IsMember = None,
    member: Member = None,
    nonmember: Nonmember = None,
    columns: Columns = None,
    estimator: Estimator = None,
    threshold: Threshold = None,
    deviation: Deviation = None,
    dimension: Dimension = None,
    guesses: Guesses = None,
    inputs: Inputs = None,
    trials: Trials = None,
    batched: Batched = False,
    low_bits: LowBits = False,
    keep: Keep = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    alpha: Alpha = 0.05,
    accept_weak: AcceptWeak = False,
    json: Json = False,
    html: Html = None,
) -> None:
    """Audit a claim with your own mechanism, scores or system (an Opacus training, a Flower app); no suite is run.

    Of scores, AUC and TPR at small FPR are printed with and without a claim.
    """
    given = dict(locals())
    with reported_errors():
        from .audit_run import carry_out, stated_system

        if (system := stated_system(target, given)) is None:
            raise typer.Exit(carry_out(target, given))
        from .system_run import carry_out_replicas  # Lazy: an audit of scores or a function needs no torch.

        raise typer.Exit(carry_out_replicas(target, system, given))


System = Annotated[
    str,
    typer.Argument(
        help="file.py:name or package.module:name of a system of an adapter, or of a function that makes one."
    ),
]


def watch(
    target: System,
    seed: Annotated[int, _option(min=0, help="Seed of the watched run and of the steps that are played back.")] = 0,
    json: Json = False,
    html: Html = None,
) -> None:
    """Watch one run of a system and play frozen inputs through it; exit code 10 if a check fails."""
    with reported_errors():
        from .system_run import carry_out_watch

        raise typer.Exit(carry_out_watch(target, seed=seed, as_json=json, html=html))
