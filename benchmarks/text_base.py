"""Train the frozen weights of model text_lora on public text, and print how well they predict.

    python benchmarks/text_base.py fl/models/architectures/text_lora.npz

The public text is that of all but the 40 speakers with the longest parts in Shakespeare's plays, whose text is the data
set ``shakespeare_secrets``. 2,500 steps of Adam on 64 windows take about 100 seconds of one core. The printed number is
the share of next characters predicted in test windows of the 40 speakers, none of which was trained on.
"""

import sys

import numpy as np
import torch
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.shakespeare import ALPHABET, LENGTH, SPEAKERS, speakers_of
from fedassay.fl.models.architectures.text_transformer import text_transformer
from torch import Tensor, nn

STEPS, LOT, RATE = 2500, 64, 0.003


def main() -> None:
    """Train, print the accuracy, and write the weights in half precision."""
    public, tests = parts()
    model = trained(public)
    print(f"{accuracy(model, tests):.3f} of the next characters of {len(tests)} windows")
    weights = {name: value.numpy().astype(np.float16) for name, value in model.state_dict().items()}
    np.savez_compressed(sys.argv[1], **weights)


def parts() -> tuple[Tensor, Tensor]:
    """Return the windows of the public speakers, and the test windows of the others, ``(n, 33)`` tokens each."""
    train, test = speakers_of(DataFolder.from_environment())
    by_length = sorted(range(len(train)), key=lambda speaker: -len(train[speaker]))
    public, private = by_length[SPEAKERS:], by_length[:SPEAKERS]
    return joined([train[speaker] for speaker in public]), joined([test[speaker] for speaker in private])


def joined(windows: list[np.ndarray]) -> Tensor:
    """Return the windows of several speakers as one tensor."""
    return torch.from_numpy(np.concatenate(windows))


def trained(windows: Tensor, steps: int = STEPS) -> nn.Module:
    """Return a model trained on these windows from a fixed seed."""
    torch.manual_seed(0)
    model = text_transformer((1, 1, LENGTH), len(ALPHABET))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(steps):
        lot = windows[torch.randint(len(windows), (LOT,))]
        loss = nn.functional.cross_entropy(logits(model, lot).flatten(0, 1), lot[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


def logits(model: nn.Module, windows: Tensor) -> Tensor:
    """Return the logits of the next tokens of windows."""
    outputs: Tensor = model(windows[:, :-1].float().view(-1, 1, 1, LENGTH))
    return outputs


@torch.no_grad()
def accuracy(model: nn.Module, windows: Tensor) -> float:
    """Return the share of next tokens of these windows that the model predicts."""
    return float((logits(model, windows).argmax(-1) == windows[:, 1:]).float().mean())


if __name__ == "__main__":
    main()
