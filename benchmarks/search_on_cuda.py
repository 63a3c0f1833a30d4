"""Searches for images on a GPU, compared with one CPU thread: time, distance, repeatability.

    python benchmarks/search_on_cuda.py [--images 20] [--restarts 8] [--repeats 3]

Digits, LeNet, one image per upload, no defense. ``tf32`` is the default of cuDNN; ``float32`` is what a run uses
(``suites/attacking/finished_cells.py``): convolutions in float32 by algorithms that repeat their bits. PSNR: to the
client's image, at most 100; distance: mean squared error in pixels to the result on the CPU; both are medians over
uploads. Seconds are medians of wall time, taken in turns.
"""

import argparse
import time

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient.dlg import DLG
from fedassay.attacks.gradient.image_attack import SearchAttack
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.audit.observer import UPLOADS
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions import OneSample
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View, ViewRecorder
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.attacking.finished_cells import moved, moved_knowledge, run_attack
from fedassay.suites.scoring.images import score_images


def seen(images: int) -> tuple[View, Knowledge, np.ndarray]:
    """One round of ``images`` digits, one per client, and these images."""
    streams = Streams(0)
    data = load_dataset("digits")
    task = build_task(data, model="lenet", partition=OneSample(), clients=images, samples=images, streams=streams)
    algorithm, layout = FedSGD(learning_rate=1.0), task.network.layout
    plan = Plan(sizes=task.sizes, rounds=1, cohort=Full(), lot=Full(), algorithm=algorithm, layout=layout)
    recorder = ViewRecorder(observer=UPLOADS)
    final = run_federation(task, plan, Protection(), streams, recorders=[recorder])
    knowledge = Knowledge.of(task, plan, Protection(), initial=final[0])
    return recorder.view(plan, final), knowledge, task.images[torch.cat(task.parts)].numpy()


def found(mode: str, attack: SearchAttack, view: View, knowledge: Knowledge) -> np.ndarray:
    """Images ``(uploads, *shape)``."""
    rng = np.random.default_rng(0)
    if mode == "tf32":
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
            return attack.run(moved(view, "cuda"), moved_knowledge(knowledge, "cuda"), rng).images
    return run_attack(attack, view, knowledge, rng, device="cpu" if mode == "cpu" else "cuda").images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here")
    view, knowledge, truth = seen(arguments.images)
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}")
    attacks = {
        "dlg": DLG(restarts=arguments.restarts),
        "inversion": GradientInversion(iterations=500, restarts=arguments.restarts),
    }
    for name, attack in attacks.items():
        for mode in ("tf32", "float32"):
            found(mode, attack, view, knowledge)  # Warms up.
        images, seconds = dict[str, list[np.ndarray]](), dict[str, list[float]]()
        for _ in range(arguments.repeats):
            for mode in ("cpu", "tf32", "float32"):
                started = time.perf_counter()
                images.setdefault(mode, []).append(found(mode, attack, view, knowledge))
                seconds.setdefault(mode, []).append(time.perf_counter() - started)
        for mode, tries in images.items():
            apart = ((tries[0] - images["cpu"][0]) ** 2).reshape(arguments.images, -1).mean(1)
            same = all((one == tries[0]).all() for one in tries)
            psnr = np.median([score.psnr for score in score_images(tries[0], truth)])
            print(
                f"{name:10} {mode:8} {np.median(seconds[mode]):6.2f} s, {psnr:5.1f} dB, "
                f"distance {np.median(apart):.1e}, the same bits every time: {'yes' if same else 'no'}"
            )


if __name__ == "__main__":
    main()
