"""fedassay: watches programs whose parts it can watch, computes epsilon again, and audits the release as a mechanism.

A watched run accuses a correct program with probability 1e-5 at most, and the audit of the release with ``LEVEL``.
"""

from fedassay import Claim, audit_mechanism

from dp_faults import KINDS as ALL
from dp_faults import Subject, Verdict, runs, trials
from dp_faults.tools._fedassay_federated import LOOKS

NAME = "fedassay"
PURPOSE = "audits privacy claims in federated learning: attacks and audits test a claim (a stated epsilon)"
KINDS = tuple(ALL)
LEVEL = 0.01


def judge(subject: Subject, seed: int) -> Verdict:
    aside = []
    for part, look in LOOKS.items():
        if part in subject.program.parts:
            try:
                if words := look(subject, subject.program.parts[part], seed):
                    return Verdict(outcome="found", words=words)
            except Exception as refused:
                aside.append(f"{part} not looked at: {type(refused).__name__}: {refused}")
    claim, release = subject.program.claim, runs(subject)
    stated = Claim.stated(claim.epsilon, claim.delta, adjacency=claim.adjacency)
    number = trials(subject, share=0.2, most=100_000)
    aside.append(f"{number} runs on each neighbour")
    found = audit_mechanism(
        lambda side, rng: release(int(side), rng), stated, inputs=(0, 1), trials=number, seed=seed, alpha=LEVEL
    )
    return Verdict(
        outcome="found" if found.verdict == "REFUTED" else "silent",
        words="; ".join(aside[::-1]),
        epsilon_low=found.measurement.epsilon_low if found.measurement else None,
    )
