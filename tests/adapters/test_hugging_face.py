"""Adapters of a small GPT-2 that Opacus makes private and `Trainer` trains: a correct training, and broken ones."""

import copy

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'fedassay[hf]'")
pytest.importorskip("peft", reason="peft is not installed: pip install 'fedassay[hf]'")

from fedassay.adapters.opacus import Training
from fedassay.cli.system_run import judge_watched
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from opacus_runs import ClipOfTheSum, HalfTheNoise, NoClip
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

RECORDS, LENGTH, TOKENS, STEPS = 100, 12, 32, 6


@pytest.fixture(scope="module")
def texts():
    drawn = torch.randint(TOKENS, (RECORDS, LENGTH), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": text, "labels": text} for text in drawn]


@pytest.fixture(scope="module")
def base():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2))


class _ClearsGradients(TrainerCallback):
    def on_step_end(self, args, state, control, optimizer, **parts):
        optimizer.zero_grad()


class _StepSizeByLoss(Trainer):
    def compute_loss(self, *args, **named):
        loss = super().compute_loss(*args, **named)
        for group in self.optimizer.param_groups:
            group["lr"] = 0.5 / float(loss if isinstance(loss, torch.Tensor) else loss[0])
        return loss


class _OneTensorWithoutNoise(DPOptimizer):
    def add_noise(self):
        super().add_noise()
        self.params[0].grad = self.params[0].summed_grad.clone()


def system(base, texts, *, kind=None, trainer=Trainer, own_loader=False, seeded=True, **options):
    def build(data):
        adapters = LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights="gaussian")
        model, engine = get_peft_model(copy.deepcopy(base), adapters).train(), PrivacyEngine()
        optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.5)
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=DataLoader(data, batch_size=20),
            noise_multiplier=1.0,
            max_grad_norm=0.1,
            **options,
        )
        if kind is not None:
            optimizer.__class__ = kind
        return model, optimizer, loader, engine, data

    def train(model, optimizer, loader, engine, data, folder):
        seed = {"seed": int(torch.randint(2**31, ()))} if seeded else {}
        args = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            max_grad_norm=0,
            remove_unused_columns=False,
            per_device_train_batch_size=20,
            save_strategy="no",
            disable_tqdm=True,
            report_to=[],
            use_cpu=True,
            **seed,
        )
        run = trainer(model, args, train_dataset=data, optimizers=(optimizer, None), callbacks=[_ClearsGradients()])
        if not own_loader:
            run.get_train_dataloader = lambda: loader
        run.train()

    return lambda folder: Training(build, lambda *built: train(*built, str(folder)), texts, delta=1e-5)


def test_a_correct_training_is_not_accused(base, texts, tmp_path):
    found = system(base, texts)(tmp_path).watch()
    assert ([one.name for one in found.failed], found.unexplained) == ([], "")


@pytest.mark.simulations
def test_none_of_forty_correct_runs_is_accused(base, texts, tmp_path):
    training = system(base, texts)(tmp_path)
    seen = [training.watch(seed) for seed in range(40)]
    assert [seed for seed, one in enumerate(seen) if one.failed or one.unexplained] == []


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"kind": HalfTheNoise}, "noise scale"),
        ({"kind": _OneTensorWithoutNoise}, "noise present"),
        ({"kind": NoClip}, "sum of clipped rows"),
        ({"kind": ClipOfTheSum}, "sums on neighbouring data"),
        ({"poisson_sampling": False}, "neighbouring records"),
        ({"trainer": _StepSizeByLoss}, "state without noise"),
    ],
    ids=[
        "half of the noise",
        "a tensor without noise",
        "no clip",
        "clip of the sum",
        "lots in the order of the data",
        "step size by loss",
    ],
)
def test_faults_are_found_by_watch(changed, check, base, texts, tmp_path):
    assert check in [one.name for one in system(base, texts, **changed)(tmp_path).watch().failed]


def test_the_default_seed_of_trainer_leaves_the_verdict_open(base, texts, tmp_path):
    assert "same in runs with two seeds" in system(base, texts, seeded=False)(tmp_path).watch().unexplained


def test_the_loader_that_trainer_makes_reads_ahead_so_that_lots_are_left_open(base, texts, tmp_path):
    found = system(base, texts, own_loader=True)(tmp_path).watch()
    assert found.failed == ()
    assert judge_watched(found).exit_code == 11
