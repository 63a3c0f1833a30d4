"""Runs Flower apps as they are, without a SuperLink, so that they can be watched, played back and audited."""

import inspect
import math
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..audit.check import ACCOUNTED, PRESENT, CheckResult
from ..audit.claim import Adjacency, Claim, Unit
from ..audit.observer import GLOBAL_MODELS
from ..audit.supplied.given import check_whole
from ..audit.wording import counted
from ..checks.training_record import AccountantHistory, Plant, Release, TrainingRecord, equal_releases
from ..checks.watched_run import Watched, watched
from ..defenses.accounting.gaussian import SampledGaussian
from ..defenses.accounting.stated_laws import claim_from_noise, reported_claim
from ..defenses.defense import check_delta
from ..fl.fields import check_positive
from ..fl.laws import GaussianLaw
from ..fl.layout import Layout
from ..fl.streams import seeded
from .flower_grid import Clients, LocalClients, ProcessGrid, RayClients, context, derived_seed, in_process, innermost
from .flower_hooks import FirstRoundEnded, FlowerHooks, noise_of_updates_and_count, quiet_vector, stated_by_mod
from .flower_noise import SEEN_ABOVE, UPDATES, FirstRound, NoisePlace, noise_place, of_updates
from .flower_play_back import CASES, MADE_BEFORE, NOT_A_SUM, FlowerPlay, FlowerPlayBack, Replies
from .flower_rounds import NOT_STARTED, starting
from .many_units import ManyUnits
from .runner import is_replayable
from .target import find_object

PROCESS, RAY = "process", "ray"
"""Where clients are called."""
_CLIENT = 1
"""Purpose of the seeds that are derived from the seed of a run."""
_ROUNDING = 1e-3
"""Relative difference of two epsilons that is rounding."""


class App:
    """A Flower training that can be run with and without one client's update.

    Example::

        def make_server_app():
            app = ServerApp()

            @app.main()
            def main(grid, context):
                strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 0.5, 10)
                strategy.start(grid, ArrayRecord(build().state_dict()), num_rounds=5)

            return app


        print(*flower.App(make_server_app, make_client_app).watch().lines(), sep="\\n")

    Args:
        make_server_app: makes a new ``ServerApp``, because strategies keep state; it starts one strategy, in its
            ``main`` or, in Flower's older interface, by its ``server_fn``.
        make_client_app: makes a new ``ClientApp`` of the same interface, because mods are bound then: one that
            registers functions, or one of a ``client_fn``. Either may be a text ``package.module:app``, as Flower's
            ``pyproject.toml`` names it: the module is then run anew for each app.
        nodes: their number; node n has the configuration ``partition-id`` n - 1 and ``num-partitions``.
        law: of one aggregate, for an app whose clip and noise are its own: the model moves by
            ``scale * (sum of clipped updates) + noise``; it is taken in place of what wrappers and mods of Flower
            state. Its rate is 1, because a fixed number of clients is drawn, which is no Poisson sampling.
        delta: of the claim, in (0, 1), where strategy or law state noise alone; the delta of an accountant or of a mod
            for local differential privacy takes its place.
        epsilon: that is reported for all rounds, > 0; by default that of an accountant, or of a mod for one report.
            Where there is none, the claim is what the noise implies, and no reported number is compared.
        run_config: of the run, for server and clients.
        missing: number of nodes whose replies never arrive.
        cases: of replies for which play-back checks the claim; fewer where the deployment rules the others out.
        backend: "process" calls the clients one after the other in this process, "ray" in the workers of a Ray of its
            own, all messages at once that the server sends at once. Both release the same numbers under one seed,
            unless clients share state in memory. With ``jobs`` of ``audit_replicas`` each process starts a Ray.

    The server and every call of a client draw from generators of their own, as in separate processes.

    Raises:
        ValueError: for arguments out of range, among them a delta outside of (0, 1).
    """

    def __init__(
        self,
        make_server_app: Callable[[], Any] | str,
        make_client_app: Callable[[], Any] | str,
        *,
        nodes: int = 10,
        law: GaussianLaw | None = None,
        delta: float = 1e-5,
        epsilon: float | None = None,
        run_config: Mapping[str, Any] | None = None,
        missing: int = 0,
        cases: Sequence[Replies] = CASES,
        backend: str = PROCESS,
    ) -> None:
        check_whole("nodes", nodes, least=1)
        check_whole("missing", missing, least=0)
        check_delta(delta)
        if epsilon is not None:
            check_positive("epsilon", epsilon)
        if missing >= nodes:
            raise ValueError(f"missing (a number of nodes) must be below the number of nodes, {nodes}, got {missing}")
        if law is not None:
            _check_law(law)
        if isinstance(cases, Replies) or not all(isinstance(one, Replies) for one in cases):
            raise ValueError(f"cases must be a tuple of Replies, such as (EQUAL,), got {cases!r}")
        for name, make in (("make_server_app", make_server_app), ("make_client_app", make_client_app)):
            if not (inspect.isroutine(make) or inspect.isclass(make) or isinstance(make, partial | str)):
                raise ValueError(
                    f"{name} must be a function that makes an app, or its name 'package.module:app', got "
                    f"{type(make).__name__}"
                )
        self._make_server_app, self._make_client_app = _maker(make_server_app), _maker(make_client_app)
        self._nodes, self._law, self._missing, self._delta, self._epsilon = nodes, law, missing, delta, epsilon
        if backend not in (PROCESS, RAY):
            raise ValueError(f"backend must be {PROCESS!r} or {RAY!r}, got {backend!r}")
        self._run_config, self._cases, self._backend = dict(run_config or {}), tuple(cases), backend
        self.interrupted: TrainingRecord | None = None

    @classmethod
    def of_project(
        cls, folder: Path | str = ".", *, run_config: Mapping[str, Any] | None = None, **options: Any
    ) -> "App":
        """Return the app that the ``pyproject.toml`` in ``folder`` names; ``flwr new`` writes such a file.

        ``run_config``: values that replace those of the file; ``options``: those of ``App``. Raises OSError and
        ValueError for a file that is missing, is no TOML or names no apps.
        """
        place = Path(folder).resolve()
        file = place / "pyproject.toml"
        try:
            app = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
            apps = app["components"]["serverapp"], app["components"]["clientapp"]
        except KeyError as error:
            raise ValueError(
                f"{file} must have the keys serverapp and clientapp in [tool.flwr.app.components]; it has no {error}"
            ) from None
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
        return cls(*apps, run_config=_flat(app.get("config", {})) | dict(run_config or {}), **options)

    def run(self, member: bool = False, seed: int = 0, *, plant: Plant | None = None) -> TrainingRecord:
        """Run the server app and the client app once, and return what was recorded.

        ``member``: whether the planted unit takes part. It stands in place of the last node's update, between the
        training function and all mods, so that it is clipped, weighted and noised like all others. In a run without
        it this update has a thousandth of the clip norm, because Flower divides by lengths.

        An exception passes through, and what was seen before it is kept as ``interrupted``. Raises TypeError for a
        server app that starts no strategy and for apps of two interfaces, ValueError for a server app without rounds
        and for a plant in a client app that was made before.
        """

        def planted(layout: Layout) -> dict[int, Tensor]:
            if plant is None:
                return {}
            direction = plant.direction(layout)
            return {self._nodes: direction * plant.weight if member else quiet_vector(direction)}

        return self._run(seed, planted)[0]

    def run_many_units(self, many: ManyUnits, seed: int = 0) -> TrainingRecord:
        """Run both apps once with many planted units; each takes part by its own coin, and they are the last nodes.

        Raises ValueError as ``run``, for more units than nodes or coordinates, for a mod that noises each report, and
        where no unit can be planted.
        """
        if self.unplantable:
            raise ValueError(self.unplantable)
        if many.units > self._nodes:
            raise ValueError(f"units must be at most the {self._nodes} nodes, got {many.units}")

        def planted(layout: Layout) -> dict[int, Tensor]:
            vectors = []
            for coordinate, coin in zip(many.coordinates(layout).tolist(), many.coins.tolist(), strict=True):
                axis = torch.zeros(layout.dim, dtype=torch.float64)
                axis[coordinate] = 1
                vectors.append(axis * many.weight if coin else quiet_vector(axis))
            return dict(zip(range(self._nodes - many.units + 1, self._nodes + 1), vectors, strict=True))

        recording, hooks = self._run(seed, planted)
        if hooks.mod is not None:
            raise ValueError(
                "many canaries need one noised sum, but here a mod adds noise to each report: audit "
                "one report with replicas"
            )
        return recording

    def _run(
        self, seed: int, planted: Callable[[Layout], dict[int, Tensor]] = lambda _: {}, inner: int | None = None
    ) -> tuple[TrainingRecord, FlowerHooks]:
        """``inner``: seed of all training functions, in a run of one round."""
        hooks = FlowerHooks(law=self._law, planted=planted, missing=self._missing, first_alone=inner is not None)
        hooks.inner.seed, hooks.inner.differences = inner, self._differences
        with seeded(seed), in_process(), starting(hooks.start):
            with innermost(hooks.inner, hooks.see_mod):
                client = self._make_client_app()
            grid = ProcessGrid(
                self._clients(client, hooks, seed),
                self._nodes,
                run_config=self._run_config,
                answered=hooks.answered,
                failed=hooks.fail,
            )
            try:
                self._make_server_app()(grid, context(self._run_config))
                hooks.raise_failure()
            except FirstRoundEnded:
                pass
            except Exception as error:
                self.interrupted = None if hooks.layout is None else self._recording(hooks)
                error.add_note(f"raised after {len(hooks.releases)} releases, which are kept as App.interrupted")
                if isinstance(error, ZeroDivisionError) and _in_flower(error):
                    error.add_note("Flower's clipping divides by the norm of an update, and a client's update was zero")
                raise
            finally:
                grid.close()
        if hooks.strategy is None:
            raise TypeError(NOT_STARTED)
        if hooks.layout is None:
            raise ValueError("the server app must run at least one round, but it ran none")
        if hooks.has_units and hooks.unmodded:
            raise ValueError(MADE_BEFORE)
        return self._recording(hooks), hooks

    def _clients(self, client: Any, hooks: FlowerHooks, seed: int) -> Clients:
        calls = iter(range(2**31))

        def seed_of(node: int) -> int:
            return derived_seed(seed, _CLIENT, next(calls), node)

        if self._backend == RAY:
            return RayClients(client, hooks.inner, seed_of=seed_of)
        return LocalClients(client, called=lambda node: seeded(seed_of(node)))

    def watch(self, seed: int = 0) -> Watched:
        """Run both apps once and check everything that was recorded.

        Where a ``law`` is noised inside of the clients' training function, what a client made is noised already: then
        no sum without noise is seen, and the checks that compare with it are left out.
        """
        recording, hooks = self._run(seed)
        found, place = watched(recording), self._place
        results = {one.name: of_updates(one) if one.name == UPDATES else one for one in found.results}
        if reason := self._unknown_sum(hooks):
            # Of a wrapper's own kind, the sum before the noise was seen itself.
            left = SEEN_ABOVE if self._law is not None else SEEN_ABOVE[1:]
            results |= {check: check.skipped(reason) for check in left}
        if place.inside:
            results |= {check: check.skipped(place.inside) for check in SEEN_ABOVE}
        if place.row is not None:
            results[place.row.name] = place.row
        if place.nowhere:
            results[PRESENT] = replace(PRESENT.failed(place.nowhere), hook=("noised step",))
        if hooks.mod is not None and self._law is None:
            results[ACCOUNTED] = self._reported(hooks.mod, hooks.rounds)
        elif results[ACCOUNTED].passed is False and self.play().draws_clients:
            results[ACCOUNTED] = ACCOUNTED.skipped(
                "the strategy samples a fixed number of clients, which this computation leaves out; "
                f"{results[ACCOUNTED].witness}"
            )
        return replace(found, results=tuple(results.values()))

    def _reported(self, mod: Any, rounds: int) -> CheckResult:
        """Compare an epsilon with that of the noise of a mod for local differential privacy: the user's of all reports
        of a client, or else the mod's of one.
        """
        claim, multiplier = _local_claim(mod), stated_by_mod(mod).noise_multiplier
        share = 0.5 if claim.adjacency is Adjacency.REPLACE_ONE else 1.0
        stated, reports = (claim.epsilon, 1) if self._epsilon is None else (self._epsilon, rounds)
        implied = SampledGaussian(sigma=share * multiplier, rate=1.0, steps=reports).epsilon(claim.delta)
        of = counted(reports, "report")
        witness = f"stated at delta {claim.delta:g} for {of} of a client; the noise implies {implied:.4g}"
        if implied > 1 and reports == 1:
            witness += ", because the formula for the mod's noise holds only up to epsilon 1"
        return ACCOUNTED.at_least(stated, implied * (1 - _ROUNDING), unit="epsilon", witness=witness)

    def play(self) -> FlowerPlay:
        """Return one round of the strategy, including the clients' mods, that can be run on given updates."""
        return self._played(differences=self._differences)

    def _played(self, *, differences: bool) -> FlowerPlay:
        return FlowerPlay(
            make_server_app=self._make_server_app,
            make_client_app=self._make_client_app,
            nodes=self._nodes,
            law=self._law,
            run_config=self._run_config,
            differences=differences,
        )

    @property
    def _differences(self) -> bool:
        """Whether clients of an app with a law of its own send differences of models: only these then add up."""
        return self._law is not None and self._added[0]

    @cached_property
    def _added(self) -> tuple[bool, str]:
        """Whether differences of models are sent, and why the sum before the noise is not known; empty where it is."""
        for differences in (False,) if self._law is None else (False, True):
            try:
                if FlowerPlayBack(self._played(differences=differences)).adds_up:
                    return differences, ""
            except Exception as error:  # Foreign strategies may refuse frozen replies by any exception.
                return False, f"replies that are played back do not sum to the release: {type(error).__name__}: {error}"
        return False, NOT_A_SUM

    def play_back(self, seed: int = 0) -> FlowerPlayBack:
        """Return a play-back of the strategy on frozen replies: each play starts a new strategy, and no client
        trains.
        """
        return FlowerPlayBack(self.play(), seed, cases=self._cases, unplantable=self.unplantable)

    @property
    def unplantable(self) -> str:
        """Why no unit (canary) can be planted, so that no audit by runs is possible; empty if one can."""
        return self._place.inside

    def _unknown_sum(self, hooks: FlowerHooks) -> str:
        """Why the sum before the noise is not known; empty where it is."""
        own = type(hooks.strategy).__module__.startswith("flwr.") and self._law is None
        local = hooks.mod is not None and self._law is None
        return "" if own or local or not hooks.releases else self._added[1]

    @cached_property
    def _place(self) -> NoisePlace:
        def first_round(inner: int) -> FirstRound:
            _, hooks = self._run(0, inner=inner)
            return FirstRound(movement=hooks.movement, updates=dict(hooks.inner.made))

        return noise_place(self.play(), first_round)

    @cached_property
    def claim(self) -> Claim:
        """The claim that the accountant, the wrapper or the mod states; if they state no epsilon, the claim that the
        noise implies.

        Raises ValueError for a strategy that states no noise.
        """
        recording, hooks = self._first
        if hooks.mod is not None and self._law is None:
            return _local_claim(hooks.mod)
        if not recording.releases:
            raise ValueError("no release has stated noise: give the noise distribution of one aggregate as law=")
        strategy, steps = hooks.strategy, len(recording.releases)
        accountant = getattr(strategy, "accountant", None)
        stated: dict[str, Any] = {"unit": Unit.CLIENT, "observer": GLOBAL_MODELS, "rounds": steps, "steps": steps}
        if accountant is not None:
            delta = float(accountant.config.target_delta)
            epsilon = float(accountant.get_epsilon(delta)) if self._epsilon is None else self._epsilon
            neighbours = Adjacency.ADD_REMOVE
            multiplier = recording.releases[0].noise_multiplier
            stated |= {"adjacency": neighbours, "epsilon": epsilon}
            return reported_claim(claim_from_noise, multiplier, delta=delta, **stated)
        noises = self._noises(recording.releases, strategy)
        if min(noises) == 0:
            raise ValueError("the strategy states noise 0, which implies no finite epsilon")
        # Exact for Gaussian noise: as many rounds of equal noise have the same trade-off curve.
        multiplier = math.sqrt(steps / sum(noise**-2 for noise in noises))
        # Wrappers divide by a fixed number of clients, and state no neighbouring relation.
        stated |= {"adjacency": Adjacency.ZERO_OUT, "epsilon": self._epsilon}
        return reported_claim(claim_from_noise, multiplier, delta=self._delta, **stated)

    def _noises(self, releases: Sequence[Release], strategy: Any) -> tuple[float, ...]:
        """The noise multiplier of each round of a strategy without an accountant."""
        together = None if self._law is not None else noise_of_updates_and_count(strategy)
        return tuple(one.noise_multiplier if together is None else together for one in releases)

    @property
    def law(self) -> GaussianLaw | None:
        """The noise distribution (law) of one release, if all releases have the same noise and clip norm."""
        laws = {(one.clip_norm, one.noise_multiplier) for one in self._first[0].releases}
        if len(laws) != 1:
            return None
        norm, multiplier = laws.pop()
        return GaussianLaw(clip_norm=norm, scale=1.0, noise_std=multiplier * norm)

    @cached_property
    def replayable(self) -> bool:
        """Whether two runs with one seed release the same numbers. Raises ValueError as ``is_replayable``."""
        return is_replayable(self._first[0], self.run, same=equal_releases)

    @cached_property
    def _first(self) -> tuple[TrainingRecord, FlowerHooks]:
        return self._run(seed=0)

    def _recording(self, hooks: FlowerHooks) -> TrainingRecord:
        assert hooks.layout is not None
        remarks = {"lots": "a round uses all replies that arrive, and no amplification by sampling is accounted for"}
        accountant = getattr(hooks.strategy, "accountant", None)
        ledger: AccountantHistory | None = None
        accounted, delta = self._epsilon, self._delta
        if accountant is None and (self._epsilon is None or not hooks.releases or hooks.mod is not None):
            remarks["ledger"] = "the strategy has no accountant: give the reported epsilon of all rounds as epsilon="
        elif accountant is None:
            noises = groupby(self._noises(hooks.releases, hooks.strategy))
            ledger = tuple((noise, 1.0, len(list(rounds))) for noise, rounds in noises)
        else:
            multiplier, steps = float(hooks.strategy.noise_multiplier), int(accountant.num_releases)
            ledger = ((multiplier, 1.0, steps),) if steps else ()
            delta = float(accountant.config.target_delta)
            accounted = accounted or (float(accountant.get_epsilon(delta)) if steps else None)
        if not hooks.releases:
            remarks["noise"] = remarks["rows"] = _unreleased(hooks)
        return TrainingRecord(
            layout=hooks.layout,
            releases=tuple(hooks.releases),
            ledger=ledger,
            accounted=accounted,
            delta=delta,
            moved=tuple(hooks.moved),
            steps=hooks.rounds - hooks.skipped,
            remarks=remarks,
        )


def _maker(app: Callable[[], Any] | str) -> Callable[[], Any]:
    return partial(_anew, app) if isinstance(app, str) else app


def _anew(name: str) -> Any:
    """Return the app ``package.module:app``, whose module is run anew."""
    module = name.partition(":")[0]
    sys.modules.pop(module, None)
    return find_object(name)


def _flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values of nested tables by their names with dots, as Flower hands them over."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return found


def _check_law(law: Any) -> None:
    if not isinstance(law, GaussianLaw) or law.noise_std == 0 or law.scale < 0 or (law.rate, law.steps) != (1, 1):
        raise ValueError(f"law must be a GaussianLaw with noise, a positive scale, rate 1 and steps 1, got {law}")


def _local_claim(mod: Any) -> Claim:
    """What the mod for local differential privacy states: epsilon and delta of one report."""
    # Two clipped updates differ by up to twice the clip norm; at a smaller sensitivity a report differs from none.
    either = mod.sensitivity >= 2 * mod.clipping_norm
    adjacency = Adjacency.REPLACE_ONE if either else Adjacency.ZERO_OUT
    claim = Claim.stated(float(mod.epsilon), float(mod.delta), unit=Unit.REPORT, adjacency=adjacency)
    parameters = {"noise_multiplier": stated_by_mod(mod).noise_multiplier, "steps": 1}
    return replace(claim, mechanism="Gaussian", parameters=parameters)


def _in_flower(error: Exception) -> bool:
    """Whether an exception was raised in Flower's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("flwr.")


def _unreleased(hooks: FlowerHooks) -> str:
    if hooks.skipped:
        return f"the strategy released nothing in {hooks.skipped} of {hooks.rounds} rounds"
    return "the strategy states no noise: give the noise distribution of one aggregate as law="
