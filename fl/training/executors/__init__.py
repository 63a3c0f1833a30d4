"""The executors: one file per way to compute the clients' local training, with a class of its name."""
