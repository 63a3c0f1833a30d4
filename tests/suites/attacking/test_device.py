"""Device: the CPU unless told, refused where it is not there, part of a cell's identity, and carried through a search.

PyTorch's "meta" device holds shapes without numbers and refuses to mix with the CPU: it shows on any machine that what
an attack computes stays where its view lies.
"""

import numpy as np
import pytest
import torch
from digits_federation import digits_run
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.search import Cosine, Search, best_restarts, minimise
from fedassay.cli.app import app
from fedassay.fl.laws import GaussianLaw, LayeredGaussianLaw, layer_starts
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.suites.attacking import finished_cells as device_module
from fedassay.suites.attacking.finished_cells import moved, moved_knowledge, run_attack
from typer.testing import CliRunner

ATTACK = GradientInversion(iterations=3, restarts=2)


@pytest.fixture(scope="module")
def seen():
    """(view, knowledge) of one round of three digits, one a client."""
    task, view, _ = digits_run("lenet", 3, 3)
    return view, Knowledge.of(task, view.plan, Protection(), initial=view.final_model[0])


@pytest.fixture
def without_cuda(monkeypatch):
    monkeypatch.setattr(device_module.torch.cuda, "is_available", lambda: False)


def test_a_device_that_is_not_here_is_refused_before_anything_is_written(
    suite_file, tmp_path, monkeypatch, without_cuda
):
    monkeypatch.chdir(tmp_path)
    path = suite_file()
    result = CliRunner().invoke(app, ["run", str(path), "--device", "cuda", "-o", "out"])
    assert result.exit_code == 2
    assert result.stderr.startswith('device "cuda" is not available here (PyTorch ')
    assert result.stderr.rstrip().endswith('leave the option out, or set device "cpu"')
    assert not (tmp_path / "out").exists()


def test_the_cpu_is_the_default_and_a_device_is_part_of_every_cell(planned):
    usual, told, other = planned(), planned(overrides=("device=cpu",)), planned(overrides=("device=cuda",))
    assert {job.device for job in usual.trials} == {"cpu"}
    assert {job.device for job in other.trials} == {"cuda"}
    ids = [{cell.cell_id for cell in plan.cells} for plan in (usual, told, other)]
    assert ids[0] == ids[1]
    assert not ids[0] & ids[2]
    assert usual.run_id == told.run_id != other.run_id


def test_on_the_cpu_an_attack_gets_the_very_view_that_it_got_before(seen):
    view, knowledge = seen
    rngs = [np.random.default_rng(7), np.random.default_rng(7)]
    ours = run_attack(ATTACK, view, knowledge, rngs[0], device="cpu")
    assert (ours.images == ATTACK.run(view, knowledge, rngs[1]).images).all()


def test_every_tensor_of_view_and_knowledge_moves(seen):
    view, knowledge = moved(seen[0], "meta"), moved_knowledge(seen[1], "meta")
    (only,) = view.rounds
    tensors = [view.final_model, only.broadcast, only.reports.values, only.reports.present, knowledge.initial]
    tensors += [only.aggregate] if only.aggregate is not None else []
    tensors += [*only.reports.side.values(), *only.shared.values(), knowledge.public_images, knowledge.public_labels]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_only_searches_leave_the_cpu(seen):
    view, knowledge = seen
    images = run_attack(MeanImage(), view, knowledge, np.random.default_rng(0), device="meta").images
    assert images.shape == (3, *knowledge.network.shape)
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        run_attack(ATTACK, view, knowledge, np.random.default_rng(0), device="meta")


def convolving():
    """How a GPU would convolve."""
    cudnn = torch.backends.cudnn
    return cudnn.enabled, cudnn.conv.fp32_precision, cudnn.deterministic, cudnn.benchmark


class Asking(GradientInversion):
    """Searches for nothing: tells how a GPU would convolve meanwhile."""

    def run(self, view, knowledge, rng):
        return convolving()


class Failing(GradientInversion):
    def run(self, view, knowledge, rng):
        raise RuntimeError("no memory left")


@pytest.fixture(params=["tf32", "ieee"])
def chosen(request):
    """A caller's own choice of precision and of algorithms."""
    cudnn = torch.backends.cudnn
    found = cudnn.conv.fp32_precision, cudnn.benchmark
    cudnn.conv.fp32_precision, cudnn.benchmark = request.param, True
    yield request.param
    cudnn.conv.fp32_precision, cudnn.benchmark = found


def test_a_search_off_the_cpu_convolves_in_float32_and_leaves_no_trace(seen, chosen):
    before = convolving()
    assert before == (True, chosen, False, True)
    assert run_attack(Asking(), *seen, np.random.default_rng(0), device="cpu") == before
    assert run_attack(Asking(), *seen, np.random.default_rng(0), device="meta") == (True, "ieee", True, False)
    assert convolving() == before
    with pytest.raises(RuntimeError, match="no memory left"):
        run_attack(Failing(), *seen, np.random.default_rng(0), device="meta")
    assert convolving() == before


def on_meta(*shape):
    return torch.empty(*shape, device="meta")


def test_searches_and_objectives_stay_on_their_device():
    network = Network(model="lenet", shape=(1, 8, 8), classes=10)
    d = network.layout.dim
    cosine = Cosine(
        network=network, model=on_meta(d), gradients=on_meta(4, d), labels=on_meta(4, 1, 10), total_variation=1e-4
    )
    found = Search(iterations=2, learning_rate=0.1, signed=True).run(cosine.values, on_meta(4, 1, 1, 8, 8))
    assert (found.device.type, found.shape) == ("meta", (4, 1, 1, 8, 8))
    assert best_restarts(cosine.values, found, 2).device.type == "meta"
    assert minimise(lambda points: points.square().sum(1), on_meta(4, 7), iterations=3).points.device.type == "meta"


def test_a_tensor_that_stays_behind_is_noticed():
    network = Network(model="lenet", shape=(1, 8, 8), classes=10)
    d = network.layout.dim
    cosine = Cosine(
        network=network, model=on_meta(d), gradients=torch.ones(4, d), labels=on_meta(4, 1, 10), total_variation=1e-4
    )
    with pytest.raises(RuntimeError, match="device"):
        cosine.values(on_meta(4, 1, 1, 8, 8))


def test_laws_follow_what_they_are_asked_about():
    starts = layer_starts(Network(model="lenet", shape=(1, 8, 8), classes=10).layout)
    ones = (1.0,) * len(starts)
    laws = (
        GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=1.0),
        LayeredGaussianLaw(starts=starts, clip_norms=ones, noise_stds=ones),
    )
    for law in laws:
        assert law.log_density(on_meta(4, 900), law.contribution(on_meta(4, 900))).device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_search_on_cuda_finds_what_the_cpu_finds(seen):
    view, knowledge = seen
    cpu, cuda = (
        run_attack(ATTACK, view, knowledge, np.random.default_rng(0), device=name).images for name in ("cpu", "cuda")
    )
    assert np.abs(cpu - cuda).mean() < 0.01
