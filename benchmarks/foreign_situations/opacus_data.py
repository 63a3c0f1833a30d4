"""Situations of Opacus trainings: what of the data enters apart from clipped rows."""

import copy
import math
from collections.abc import Callable
from typing import Any

import opacus_runs
import torch
from opacus_parts import (
    CLASSES,
    FEATURES,
    LOT,
    PUBLIC,
    RECORDS,
    Changed,
    Train,
    accuracy,
    broken,
    built,
    loss_of,
    network,
    on_batches,
    private,
    right,
    steps,
    tensors_of,
    train,
)
from opacus_runs import LOSS
from torch import nn
from torch.utils.data import Dataset


class BatchCentred(nn.Module):
    """Batch normalisation of one's own, which Opacus' validator does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) / (x.std(0) + 0.1) if len(x) > 1 else x


class Averaged(nn.Module):
    """The mean output of four copies of each record, so that its gradient is one row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.stack([x, -x, x.flip(1), x.roll(1, dims=1)], dim=1)).mean(1)


def copies(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([x + 0.1 * n for n in range(4)]), y.repeat(4)


def padded(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(48) % len(x)
    return x[places], y[places]


def train_on_masked(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    """Lots are padded to 64 rows of weight zero."""
    for x, y in loader:
        left = max(0, 64 - len(x))
        weights = torch.cat([torch.ones(len(x)), torch.zeros(left)])
        optimizer.zero_grad()
        rows = model(torch.cat([x, torch.zeros(left, FEATURES)]))
        losses = nn.functional.cross_entropy(rows, torch.cat([y, y.new_zeros(left)]), reduction="none")
        (losses * weights).mean().backward()
        optimizer.step()


def train_against_the_mean(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    """A contrastive loss: each record's term holds the outputs of all others."""
    for x, y in loader:
        optimizer.zero_grad()
        found = model(x)
        LOSS(found - found.mean(0) if len(x) else found, y).backward()
        optimizer.step()


ROWS_OF_RECORDS = [
    broken(
        "batch normalisation that the validator does not know",
        source="Opacus FAQ",
        build=built(model=lambda: network(BatchCentred())),
    ),
    broken("running means of the data", source="Opacus FAQ", build=opacus_runs.build_with_buffer),
    broken("four copies of each record, each clipped alone", source="opacus#461", train=on_batches(copies)),
    broken("lots padded by their own records", source="own", train=on_batches(padded)),
    broken("mixup", source="own", train=on_batches(lambda x, y: (0.7 * x + 0.3 * x.roll(1, dims=0), y))),
    broken("a contrastive loss", source="own", train=train_against_the_mean),
    broken("lots divided by their own deviation", source="own", train=on_batches(lambda x, y: (x / x.std(), y))),
    right("group normalisation", source="Opacus FAQ", build=built(model=lambda: network(nn.GroupNorm(4, FEATURES)))),
    right("layer normalisation", source="Opacus FAQ", build=built(model=lambda: network(nn.LayerNorm(FEATURES)))),
    right("four copies averaged before the clip", source="opacus#455", build=built(model=Averaged)),
    right(
        "random jitter of each record", source="own", train=on_batches(lambda x, y: (x + 0.1 * torch.randn_like(x), y))
    ),
    right("dropout", source="own", build=built(model=lambda: network(nn.Dropout(0.3)))),
    right("lots padded by rows of weight zero", source="own", train=train_on_masked),
]


def keep_best(data: Any, better: Callable[[Any, Any], float]) -> Train:
    """Release the model of the best epoch, on the training set where ``data`` is None."""

    def train_and_keep(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        best, kept = -1e9, None
        for _ in range(3):
            list(steps(model, optimizer, loader))
            if (score := better(model, data or loader.dataset)) > best:
                best, kept = score, copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)

    return train_and_keep


def until(stops: Callable[[Any, Any, int, torch.Tensor], bool]) -> Train:
    def train_until(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        for number, _, _, loss in steps(model, optimizer, loader):
            if stops(model, loader, number, loss.detach()):
                return

    return train_until


def without_gain(data: Any) -> Train:
    """Stop where the loss is no smaller than in the step before, on the training set where ``data`` is None."""

    def train_until(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        last = math.inf
        for _ in range(3):
            for _ in steps(model, optimizer, loader):
                if (now := loss_of(model, data or loader.dataset)) > last:
                    return
                last = now

    return train_until


def plateau(data: Any) -> Train:
    """The learning rate falls where the loss does not, on the training set where ``data`` is None."""

    def train_on_plateau(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        plan = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
        for _ in range(3):
            for _ in steps(model, optimizer, loader):
                plan.step(loss_of(model, data or loader.dataset))

    return train_on_plateau


def skip_high_losses(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    for x, y in loader:
        optimizer.zero_grad()
        loss = LOSS(model(x), y)
        loss.backward()
        if float(loss.detach()) < 1.45:
            optimizer.step()


def rates_by_the_loss(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    for _, _, _, loss in steps(model, optimizer, loader):
        optimizer.param_groups[0]["lr"] = 0.1 * float(loss.detach().nan_to_num(1.0))


def before_each(change: Callable[[Any, torch.Tensor], None]) -> Train:
    def train_changed(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        list(opacus_runs.steps(model, optimizer, loader, before=lambda o, loss, x: change(o, loss) if len(x) else None))

    return train_changed


def clip_at_the_median(optimizer: Any, loss: torch.Tensor) -> None:
    rows = torch.stack([one.grad_sample.flatten(1).norm(dim=1) for one in optimizer.params]).norm(dim=0)
    optimizer.max_grad_norm = float(rows.median())


def noise_by_the_loss(optimizer: Any, loss: torch.Tensor) -> None:
    optimizer.noise_multiplier = 1 + float(loss.detach())


def train_on_the_hardest(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    for x, y in loader:
        with torch.no_grad():
            losses = nn.functional.cross_entropy(model._module(x), y, reduction="none")
        hardest = losses.topk(len(y) // 2).indices
        list(steps(model, optimizer, [(x[hardest], y[hardest])]))


def better_of_two_rates(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    start, found = copy.deepcopy(model.state_dict()), []
    for rate in (0.05, 0.5):
        model.load_state_dict(start)
        optimizer.param_groups[0]["lr"] = rate
        list(steps(model, optimizer, loader))
        found.append((accuracy(model, loader.dataset), rate, copy.deepcopy(model.state_dict())))
    model.load_state_dict(max(found, key=lambda one: one[:2])[2])


def prints_the_loss(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    losses = [float(loss.detach()) for *_, loss in steps(model, optimizer, loader)]
    engine.log = f"mean training loss {sum(losses) / len(losses):.4f}"


CONTROL = [
    broken("the best epoch by training accuracy", source="Papernot and Steinke 2022", train=keep_best(None, accuracy)),
    broken("early stopping on the training loss", source="own", train=without_gain(None)),
    broken(
        "stopping at a training accuracy",
        source="own",
        train=until(lambda m, loader, n, loss: accuracy(m, loader.dataset) > 0.3),
    ),
    broken("ReduceLROnPlateau on the training loss", source="own", train=plateau(None)),
    broken("a learning rate that follows the loss", source="own", train=rates_by_the_loss),
    broken("steps of high loss are skipped", source="own", train=skip_high_losses),
    broken(
        "the clip norm is the median of the lot", source="Andrew et al. 2021", train=before_each(clip_at_the_median)
    ),
    broken("noise that follows the loss", source="own", train=before_each(noise_by_the_loss)),
    broken("half of each lot, those of the highest losses", source="own", train=train_on_the_hardest),
    broken(
        "the better of two learning rates by training accuracy",
        source="Papernot and Steinke 2022",
        train=better_of_two_rates,
    ),
    broken("the training loss is logged", source="Opacus tutorials", train=prints_the_loss),
    right("the best epoch by public accuracy", source="Papernot and Steinke 2022", train=keep_best(PUBLIC, accuracy)),
    right("stopping on public data", source="own", train=without_gain(PUBLIC)),
    right("ReduceLROnPlateau on public data", source="own", train=plateau(PUBLIC)),
    right(
        "the training loss is computed and thrown away",
        source="own",
        train=until(lambda m, loader, n, loss: float(loss) < -1),
    ),
]


def standardised(data: Any) -> Any:
    x = tensors_of(data)[0]
    return private(Changed(data, (x - x.mean(0)) / x.std(0)))


def publicly_standardised(data: Any) -> Any:
    x = tensors_of(data)[0]
    return private(Changed(data, (x - PUBLIC[0].mean(0)) / PUBLIC[0].std(0)))


def by_variance(data: Any) -> Any:
    """The ten features of the largest variance; all others are zero."""
    x = tensors_of(data)[0]
    kept = torch.zeros(FEATURES).index_fill(0, x.var(0).topk(10).indices, 1.0)
    return private(Changed(data, x * kept))


def vocabulary(data: Any) -> Any:
    """Tokens are numbered by the records that hold them."""
    tokens = (2 * tensors_of(data)[0]).round().long()
    numbers = tokens.unique(return_inverse=True)[1]
    return private(Changed(data, numbers.clamp(max=39)), model=lambda: of_tokens(40))


def public_vocabulary(data: Any) -> Any:
    return private(
        Changed(data, (2 * tensors_of(data)[0]).round().long().clamp(-8, 8) + 8), model=lambda: of_tokens(17)
    )


def of_tokens(size: int) -> nn.Sequential:
    return nn.Sequential(nn.Embedding(size, 4), nn.Flatten(), nn.Linear(4 * FEATURES, CLASSES))


def bias_of_frequencies(data: Any) -> Any:
    model = network()
    counts = torch.bincount(tensors_of(data)[1], minlength=CLASSES) + 1.0
    model[-1].bias.data = (counts / counts.sum()).log()
    return private(data, model=lambda: model)


def first_layer_by_pca(data: Any) -> Any:
    model, x = network(), tensors_of(data)[0]
    model[0].weight.data = torch.linalg.svd(x - x.mean(0), full_matrices=False).Vh[:16].clone()
    model[0].requires_grad_(False)
    return private(data, model=lambda: model)


def random_first_layer() -> nn.Sequential:
    model = network()
    model[0].requires_grad_(False)
    return model


def with_class_weights(counted: bool) -> Train:
    def train_weighted(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        counts = torch.bincount(tensors_of(loader.dataset)[1], minlength=CLASSES) if counted else torch.full((4,), 30)
        weights = RECORDS / (CLASSES * counts.clamp_min(1))
        list(
            steps(
                model,
                optimizer,
                loader,
                loss=lambda found, y: (nn.functional.cross_entropy(found, y, weight=weights, reduction="none")).mean(),
            )
        )

    return train_weighted


class Without(Dataset[Any]):
    """A data set without the records of some indices."""

    def __init__(self, data: Any, kept: list[int]) -> None:
        self.data, self.kept = data, kept

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> Any:
        return self.data[self.kept[index]]


def without_outliers(data: Any) -> Any:
    """Leave out the tenth of the records that is longest."""
    lengths = tensors_of(data)[0].norm(dim=1)
    return private(Without(data, (lengths <= lengths.quantile(0.9)).nonzero().flatten().tolist()))


def below_a_public_length(data: Any) -> Any:
    """Longer records stay with a zero in place of their features."""
    x = tensors_of(data)[0]
    return private(Changed(data, x * (x.norm(dim=1, keepdim=True) < 5.2)))


PREPARED = [
    broken("features standardised by private means", source="Opacus FAQ", build=standardised),
    broken("features chosen by private variance", source="own", build=by_variance),
    broken("a vocabulary of the private records", source="own", build=vocabulary),
    broken(
        "class weights of private counts", source="own", build=built(max_grad_norm=10.0), train=with_class_weights(True)
    ),
    broken("a bias of private label frequencies", source="own", build=bias_of_frequencies),
    broken("a first layer by PCA of the private records", source="own", build=first_layer_by_pca),
    broken("the longest tenth of the records left out", source="own", build=without_outliers),
    right("features standardised by public means", source="Opacus FAQ", build=publicly_standardised),
    right("a public vocabulary", source="own", build=public_vocabulary),
    right("constant class weights", source="own", build=built(max_grad_norm=10.0), train=with_class_weights(False)),
    right("a frozen random first layer", source="own", build=built(model=random_first_layer)),
    right("long records set to zero by a public rule", source="own", build=below_a_public_length),
]


def with_head(data: Any) -> Any:
    body = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU())
    model, optimizer, loader, engine = private(data, model=lambda: body)
    return {"model": model, "optimizer": optimizer, "loader": loader, "engine": engine, "head": nn.Linear(16, CLASSES)}


def train_head(public: bool) -> Train:
    def train_both(model: Any, optimizer: Any, loader: Any, engine: Any, head: nn.Module) -> None:
        other = torch.optim.SGD(head.parameters(), lr=0.5)
        for x, y in loader:
            optimizer.zero_grad()
            found = model(x)
            LOSS(head(found), y).backward()
            optimizer.step()
            other.zero_grad()
            with torch.no_grad():
                rows = model._module(PUBLIC[0]) if public else found.detach()
            LOSS(head(rows), PUBLIC[1] if public else y).backward()
            other.step()

    return train_both


def train_another(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    hidden = nn.Linear(FEATURES, CLASSES)
    other = torch.optim.SGD(hidden.parameters(), lr=0.5)
    for _, x, y, _ in steps(model, optimizer, loader):
        other.zero_grad()
        LOSS(hidden(x), y).backward()
        other.step()


def plain_steps(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    """The optimizer below the private one moves the model."""
    for x, y in loader:
        optimizer.zero_grad()
        LOSS(model._module(x), y).backward()
        optimizer.original_optimizer.step()


def public_steps(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    """After each private step one on public data, without noise."""
    for _ in steps(model, optimizer, loader):
        slopes = torch.func.grad(public_loss)(dict(model._module.named_parameters()))
        with torch.no_grad():
            for name, one in model._module.named_parameters():
                one -= 0.1 * slopes[name]


def public_loss(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return LOSS(torch.func.functional_call(network(), tensors, PUBLIC[0]), PUBLIC[1])


def nudged(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    """After each step the bias moves by the lot's labels."""
    for _, _, y, _ in steps(model, optimizer, loader):
        with torch.no_grad():
            model._module[-1].bias += 0.01 * torch.bincount(y, minlength=CLASSES)


def average_of_models(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    kept = copy.deepcopy(model.state_dict())
    for _ in steps(model, optimizer, loader):
        kept = {name: 0.8 * kept[name] + 0.2 * one for name, one in model.state_dict().items()}
    model.load_state_dict(kept)


def after_the_noise(change: Callable[[Any], None]) -> Train:
    """Change the gradients that ``pre_step`` made: post-processing of the release."""

    def train_after(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        optimizer.original_optimizer.register_step_pre_hook(lambda *_: change(optimizer))
        train(model, optimizer, loader, engine)

    return train_after


def clamped(optimizer: Any) -> None:
    torch.nn.utils.clip_grad_value_(optimizer.params, 0.05)


def signs(optimizer: Any) -> None:
    for one in optimizer.params:
        one.grad = 0.01 * one.grad.sign()


def divisor_of_the_lot(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    for x, y in loader:
        optimizer.expected_batch_size = max(1, len(x))
        list(steps(model, optimizer, [(x, y)]))


def constant_divisor(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    optimizer.expected_batch_size = LOT


MOVED = [
    broken(
        "a head that a plain optimizer trains on the data",
        source="Opacus, make_private",
        build=with_head,
        train=train_head(False),
    ),
    broken("another model of a plain optimizer", source="Opacus, make_private", train=train_another),
    broken("the plain optimizer steps in place of the private one", source="opacus#313", train=plain_steps),
    right("steps on public data in between", source="opacus#634", train=public_steps),
    broken("a bias that moves by the lot's labels", source="own", train=nudged),
    broken("a divisor of n under add/remove", source="opacus#819", adjacency="add_remove"),
    broken("sums divided by the size of their lot", source="opacus#420", train=divisor_of_the_lot),
    right("a head that a plain optimizer trains on public data", source="own", build=with_head, train=train_head(True)),
    right(
        "a constant divisor under add/remove",
        source="opacus#571",
        build=built(after=constant_divisor),
        adjacency="add_remove",
    ),
    right("an average of the noised models", source="De et al. 2022", train=average_of_models),
    right("noised gradients are clamped", source="own", train=after_the_noise(clamped)),
    right("signs of the noised gradients", source="own", train=after_the_noise(signs)),
]


ROWS = [*ROWS_OF_RECORDS, *CONTROL, *PREPARED, *MOVED]
