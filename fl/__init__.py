"""Federated training: data, models, clients and rounds, and what each observer sees of a run."""
