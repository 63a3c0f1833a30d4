"""Parts of Opacus for which no finding is known, by recomputing one step from its records.

Library: opacus==1.6.0.
"""

import warnings

import dp_accounting
import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.gdp import GaussianAccountant
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPPerLayerOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
COMMON = {"expected_batch_size": 4, "loss_reduction": "sum"}
ADAPTIVE = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 1.0,
}


def moved(kind, clip, row, **options):  # by one record, noise off
    sums = []
    for rows in (torch.randn(4, 3, generator=torch.manual_seed(1)), row[None]):
        torch.manual_seed(0)
        model = GradSampleModule(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), loss_reduction="sum")
        optimizer = kind(
            torch.optim.SGD(model.parameters(), 1.0), noise_multiplier=0.0, max_grad_norm=clip, **COMMON, **options
        )
        data = rows if len(rows) > 1 else torch.cat([torch.randn(4, 3, generator=torch.manual_seed(1)), rows])
        model(data).sum().backward()
        optimizer.clip_and_accumulate()
        sums.append(torch.cat([p.summed_grad.flatten() for p in optimizer.params]))
    return float((sums[1] - sums[0]).norm())


for name, kind, clip, options in (
    ("DPOptimizer", DPOptimizer, 1.0, {}),
    ("DPPerLayerOptimizer", DPPerLayerOptimizer, [0.5] * 4, {}),
    ("AdaClipDPOptimizer", AdaClipDPOptimizer, 1.0, ADAPTIVE),
):
    worst = max(moved(kind, clip, scale * torch.ones(3), **options) for scale in (1e-2, 1.0, 10.0, 1e4, 1e20))
    print(f"verdict: {name} (clip): one record moves the sum by {worst:.3f} clip norms at most")

model = GradSampleModule(nn.Linear(1000, 100, bias=False), loss_reduction="sum")
optimizer = AdaClipDPOptimizer(
    torch.optim.SGD(model.parameters(), 1.0), noise_multiplier=1.0, max_grad_norm=1.0, **COMMON, **ADAPTIVE
)
torch.manual_seed(0)
model(torch.zeros(4, 1000)).sum().backward()
optimizer.clip_and_accumulate()
optimizer.add_noise()
drawn, whole = float(optimizer.params[0].grad.std()), (1 - 1 / 4) ** -0.5
ledger = optimizer.noise_multiplier
print(f"verdict: AdaClipDPOptimizer (noise): {drawn:.2f}, needed {whole:.2f} for multiplier 1; ledger {ledger}")


LAYERS = {
    "Linear": (nn.Linear(6, 8), (7, 6)),
    "Conv1d": (nn.Conv1d(3, 8, 3, padding=1), (3, 9)),
    "Conv2d": (nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), (4, 8, 8)),
    "Conv3d": (nn.Conv3d(2, 8, 2), (2, 4, 4, 4)),
    "LayerNorm": (nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8)), (7, 6)),
    "GroupNorm": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)), (3, 6, 6)),
    "InstanceNorm": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True)), (3, 6, 6)),
    "RMSNorm": (nn.Sequential(nn.Linear(6, 8), nn.RMSNorm(8)), (7, 6)),
    "Embedding": (nn.Embedding(10, 8), None),
}
ratios = []
for layer, shape in LAYERS.values():
    rows = torch.randn(5, *shape) if shape else torch.randint(0, 3, (5, 7))
    true = []
    for row in rows:
        layer.zero_grad()
        layer(row[None]).square().sum().backward()
        true.append(torch.cat([p.grad.flatten() for p in layer.parameters()]).norm())
    for ghost in (True, False):
        wrapped = GradSampleModuleFastGradientClipping(layer, use_ghost_clipping=ghost, loss_reduction="sum")
        wrapped(rows).square().sum().backward()
        ratios.append(float((torch.stack(true) / wrapped.get_norm_sample()).max()))
        wrapped.remove_hooks()
print(
    f"verdict: DPOptimizerFastGradientClipping (norms): {len(LAYERS)} layers, true norm at most {max(ratios):.3f} of it"
)


def trained(split):  # one epoch of 64 records, sampled at 1/8
    torch.manual_seed(0)
    net = nn.Linear(2, 1, bias=False)
    data = TensorDataset(torch.randn(64, 2), torch.zeros(64, 1))
    engine = PrivacyEngine()
    net, steps, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), 0.1),
        data_loader=DataLoader(data, batch_size=8, generator=torch.Generator().manual_seed(1)),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        noise_generator=torch.Generator().manual_seed(2),
    )
    sizes = []

    def epoch(batches):
        for rows, _ in batches:
            sizes.append(len(rows))
            steps.zero_grad()
            net(rows).mean().backward()
            steps.step()

    if split:
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=3, optimizer=steps) as batches:
            epoch(batches)
    else:
        epoch(loader)
    return net.state_dict()["_module.weight"], engine.accountant.history, sizes


(whole, ledger, sizes), (parts, ledger_of_parts, pieces) = trained(False), trained(True)
same = torch.allclose(whole, parts, atol=1e-6) and ledger == ledger_of_parts and max(pieces) <= 3
print(f"verdict: BatchMemoryManager: {'same model and ledger' if same else 'differs'} with batches of 3 at most")
print(f"verdict: UniformWithReplacementSampler (Poisson): ledger {ledger[0]}, batch sizes vary: {len(set(sizes)) > 1}")

event = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0)), 1000
)
exact = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(1e-5)
for kind in (RDPAccountant, PRVAccountant, GaussianAccountant):
    accountant = kind()
    accountant.history = [(1.0, 0.01, 1000)]
    print(f"verdict: {kind.__name__}: epsilon {accountant.get_epsilon(delta=1e-5):.2f} (by dp-accounting {exact:.2f})")
