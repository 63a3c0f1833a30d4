"""SCAFFOLD in the engine: equal to a naive version with two uploads; which observers see the server's control."""

import torch
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS
from fedassay.fl.algorithms import Scaffold
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import FixedSize
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch

ALGORITHM = Scaffold(learning_rate=0.2, local_steps=3, server_learning_rate=0.9)


def by_hand(task, model, cohorts):
    """Algorithm 1 of the paper for one replica, clients of equal size: both uploads, the actual share of clients."""
    control, own = torch.zeros_like(model), [torch.zeros_like(model) for _ in task.parts]
    for cohort in cohorts:
        moves, changes = [], []
        for client in cohort:
            part, local = task.parts[client], model
            for _ in range(ALGORITHM.local_steps):
                rows = task.network.sample_gradients(local[None], task.images[part][None], task.labels[part][None])
                local = local - 0.2 * (rows[0].mean(0) - own[client] + control)
            fresh = own[client] - control + (model - local) / (3 * 0.2)
            moves.append(local - model)
            changes.append(fresh - own[client])
            own[client] = fresh
        model = model + 0.9 * torch.stack(moves).mean(0)
        control = control + len(cohort) / len(task.parts) * torch.stack(changes).mean(0)
    return model, control


def test_every_replica_is_the_papers_algorithm_on_its_own_cohorts(make_task, make_plan, make_tape):
    task, tape = make_task((5, 5, 5, 5)), make_tape()
    plan = make_plan(task, algorithm=ALGORITHM, rounds=5, cohort=FixedSize(2))
    final = run_federation(task, plan, Protection(), Streams(3), batch=Batch(replicas=3), recorders=[tape])
    initial = task.network.initial(Streams(3).generator("init"))
    for replica in range(3):
        there = [(event.reports.present[replica], event.reports.senders) for event in tape.events]
        cohorts = [[k for k, came in zip(senders, row, strict=True) if came] for row, senders in there]
        model, _ = by_hand(task, initial, cohorts)
        torch.testing.assert_close(final[replica], model, rtol=1e-4, atol=1e-5)
        _, control = by_hand(task, initial, cohorts[:-1])
        torch.testing.assert_close(tape.events[-1].shared["control"][replica], control, rtol=1e-4, atol=1e-5)


def test_only_observers_of_the_models_get_the_servers_control(make_task, make_plan):
    task = make_task()
    plan = make_plan(task, algorithm=ALGORITHM)
    watching = {o: ViewRecorder(observer=o, coordinates=slice(0, 4)) for o in (AGGREGATE, GLOBAL_MODELS, FINAL_MODEL)}
    final = run_federation(task, plan, Protection(), Streams(0), recorders=list(watching.values()))
    for observer, recorder in watching.items():
        shared = [seen.shared for seen in recorder.view(plan, final).rounds]
        assert all(("control" in seen) == (observer is not FINAL_MODEL) for seen in shared)
        assert observer is FINAL_MODEL or shared[1]["control"].shape == (1, 4)
