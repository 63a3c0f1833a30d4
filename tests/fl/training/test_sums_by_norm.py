"""Large models: lots are summed from norms, with the same results as from the samples' gradients."""

from dataclasses import dataclass

import pytest
import torch
from fedassay.defenses.controls.clipping import ClipAfterMeanProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.models import network as network_file
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import sums_by_norm, weighted_sum

CLIP = 0.5
DPSGD = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.0)
NETWORK = Network(model="lenet", shape=(1, 8, 8), classes=3, inert=4)


@dataclass(frozen=True, kw_only=True)
class PerLayer(Protection):
    """Clips each parameter's gradient to its own norm."""

    per_sample: bool = True

    def local_step(self, gradients, present, client, context, state, rng):
        clipped = [
            gradients[..., part] * CLIP / gradients[..., part].norm(dim=-1, keepdim=True).clamp_min(CLIP)
            for part in parts()
        ]
        return (torch.cat(clipped, -1) * present.unsqueeze(-1)).sum(1)

    def sample_weights(self, norms, client, context, state):
        return CLIP / norms.clamp_min(CLIP)

    def noised_sum(self, total, client, context, state, rng):
        return total


def parts():
    slices = list(NETWORK.layout.slices.values())
    return [*slices[:-2], slice(slices[-2].start, slices[-1].stop)]


def lot(replicas=2, samples=5):
    rng = Streams(3).generator("test")
    images = torch.from_numpy(rng.random((replicas, samples, 1, 8, 8), dtype="float32"))
    labels = torch.from_numpy(rng.integers(3, size=(replicas, samples)))
    real = torch.ones(replicas, samples, dtype=torch.bool)
    real[1, 3:] = False
    models = torch.stack([NETWORK.initial(rng) for _ in range(replicas)])
    planted = torch.zeros(2, NETWORK.layout.dim)
    planted[0, -1], planted[1, :7] = 3.0, 0.01
    return models, images, labels, real, planted


@pytest.mark.parametrize("with_canaries", [False, True])
@pytest.mark.parametrize("protection", [DPSGD, PerLayer()])
def test_the_sum_from_norms_is_that_of_clipped_gradients(protection, with_canaries):
    models, images, labels, real, planted = lot()
    drawn = torch.tensor([[True, True], [False, True]])
    rows, present = NETWORK.sample_gradients(models, images, labels), real
    if with_canaries:
        rows = torch.cat([rows, planted.expand(2, -1, -1)], 1)
        present = torch.cat([real, drawn], 1)
    if protection is DPSGD:
        wanted = DPSGD.total(rows, present)
    else:
        wanted = protection.local_step(rows, present, 0, None, {}, None)
    brought = (planted, drawn) if with_canaries else None
    found = weighted_sum(NETWORK, protection, models, (images, labels, real, None), brought, 0, None, {})
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert found.norm(dim=1).min() > CLIP


def test_only_large_models_and_unchanged_sums_use_norms(monkeypatch):
    class Broken(DPSGDProtection):
        def total(self, gradients, present):
            return gradients.sum(1)

    class Noisier(DPSGDProtection):
        def noised_sum(self, total, client, context, state, rng):
            return total + 1

    class Queried(DPSGDProtection):
        def local_query(self, gradients, present, client, context, state, rng):
            return gradients[:, 0, :1]

    options = {"clip_norm": CLIP, "noise_multiplier": 1.0}
    assert not sums_by_norm(DPSGD, NETWORK)
    monkeypatch.setattr(network_file, "_LARGE", 1)
    assert sums_by_norm(DPSGD, NETWORK)
    assert sums_by_norm(Noisier(**options), NETWORK)
    assert not sums_by_norm(Broken(**options), NETWORK)
    assert not sums_by_norm(Queried(**options), NETWORK)
    assert not sums_by_norm(ClipAfterMeanProtection(**options), NETWORK)
    assert not sums_by_norm(Protection(), NETWORK)


def test_a_wrong_number_of_weights_is_refused():
    class Wrong(PerLayer):
        def sample_weights(self, norms, client, context, state):
            return norms[:1, 0]

    models, images, labels, real, _ = lot()
    with pytest.raises(ValueError, match=r"sample_weights must return one weight per sample, \(5,\).*got \(1,\)"):
        weighted_sum(NETWORK, Wrong(), models, (images, labels, real, None), None, 0, None, {})
