"""Define the command ``audit`` (scores, functions and systems), and ``probe``, which runs the checks of a system."""

from pathlib import Path
from typing import Annotated

import typer

from .errors import reported_errors

Number = float | None
_option = typer.Option
Json = Annotated[bool, _option("--json", help="Print JSON.")]


def audit(
    target: Annotated[
        str,
        typer.Argument(
            help="Scores (.csv, .tsv, .parquet, .npz, .npy or .json; columns score and is_member, or member and "
            "nonmember), or file.py:name or package.module:name of a function, or of a system of an adapter."
        ),
    ],
    epsilon: Annotated[Number, _option(help="The claimed epsilon; if left out, computed from the law below.")] = None,
    delta: Annotated[float, _option(help="The claimed delta.")] = 0.0,
    mu: Annotated[Number, _option(help="Claim mu-GDP: mu = sensitivity / noise standard deviation.")] = None,
    rho: Annotated[Number, _option(help="Claim rho-zCDP.")] = None,
    noise_multiplier: Annotated[Number, _option(help="Claim DP-SGD: noise standard deviation / clip norm.")] = None,
    sampling_rate: Annotated[Number, _option(help="DP-SGD: rate of Poisson sampling, by default 1.")] = None,
    steps: Annotated[int | None, _option(help="DP-SGD: number of noisy steps, by default 1.")] = None,
    unit: Annotated[str | None, _option(help="Unit that is protected: sample, client, user, report, ...")] = None,
    adjacency: Annotated[
        str | None, _option(help="Neighbouring relation: replace_one, add_remove or zero_out.")
    ] = None,
    observer: Annotated[
        str | None,
        _option(help="What the adversary observes: uploads, shuffled, aggregate, global_models, answers, final_model."),
    ] = None,
    rounds: Annotated[int, _option(help="Number of rounds that the claim covers.")] = 1,
    independent_runs: Annotated[
        bool, _option("--independent-runs", help="Scores: each is of a run of its own, with its own noise.")
    ] = False,
    one_run: Annotated[
        bool, _option("--one-run", help="Scores: of canaries of one run, each included by a fair coin of its own.")
    ] = False,
    included: Annotated[
        str | None, _option(metavar="COLUMN", help="Scores of one run: the column that says which were included.")
    ] = None,
    clusters: Annotated[
        str | None, _option(metavar="COLUMN", help="Scores: several share a run, whose number or name this column has.")
    ] = None,
    higher: Annotated[bool, _option("--higher-is-member", help="Scores: a high score means member.")] = False,
    lower: Annotated[bool, _option("--lower-is-member", help="Scores: a low score (a loss) means member.")] = False,
    score: Annotated[
        str | None, _option(metavar="COLUMN", help="Scores: name of the column of scores, by default score.")
    ] = None,
    is_member: Annotated[
        str | None,
        _option("--is-member", metavar="COLUMN", help="Scores: name of the column of truths, by default is_member."),
    ] = None,
    member: Annotated[
        str | None, _option(metavar="COLUMN", help="Scores: name of the column of members, by default member.")
    ] = None,
    nonmember: Annotated[
        str | None, _option(metavar="COLUMN", help="Scores: name of the column of non-members, by default nonmember.")
    ] = None,
    columns: Annotated[
        str | None,
        _option(metavar="NAMES", help="Scores in a plain .npy array: names of its columns, with commas."),
    ] = None,
    estimator: Annotated[
        list[str] | None, _option(help="Estimator, of 'fedassay list estimators'. Several share alpha. Repeatable.")
    ] = None,
    threshold: Annotated[Number, _option(help="Scores: a threshold that was fixed before they were seen.")] = None,
    deviation: Annotated[Number, _option(help="Scores: their true standard deviation (z_test).")] = None,
    dimension: Annotated[int | None, _option(help="Cosines of canaries: number of parameters (one_shot).")] = None,
    guesses: Annotated[int | None, _option(help="One run: number of guesses, fixed before scores were seen.")] = None,
    inputs: Annotated[
        tuple[str, str] | None, _option(metavar="X0 X1", help="Function: two neighbouring inputs, as JSON.")
    ] = None,
    trials: Annotated[int | None, _option(help="Function: trials per input, by default 100,000.")] = None,
    batched: Annotated[bool, _option("--batched", help="Function: x has one row per trial.")] = False,
    low_bits: Annotated[
        bool, _option("--low-bits", help="Function: audit the lowest bits of its floating-point outputs.")
    ] = False,
    keep: Annotated[
        Path | None, _option(help="Function: folder that keeps the output of every run, to resume or extend them.")
    ] = None,
    jobs: Annotated[int | None, _option("-j", "--jobs", min=1, help="Function: processes, by default 1.")] = None,
    seed: Annotated[int, _option(min=0, help="Seed of the trials, or of the split of the scores.")] = 0,
    alpha: Annotated[float, _option(help="Largest probability of a false refutation.")] = 0.05,
    json: Json = False,
) -> None:
    """Audit a claim with your own mechanism, scores or system (an Opacus training, a Flower app); no suite is run."""
    given = dict(locals())
    with reported_errors():
        from .audit_run import carry_out

        raise typer.Exit(carry_out(target, given))


def probe(
    target: Annotated[
        str,
        typer.Argument(
            help="file.py:name or package.module:name of a system of an adapter, or of a function that makes one."
        ),
    ],
    seed: Annotated[int, _option(min=0, help="Seed of the watched run and of the plays.")] = 0,
    json: Json = False,
) -> None:
    """Watch one run of a system and play frozen inputs through it; exit code 10 if a check fails."""
    with reported_errors():
        from .system_run import carry_out_probe

        raise typer.Exit(carry_out_probe(target, seed=seed, as_json=json))
