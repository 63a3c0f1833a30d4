"""Membership inference attacks: infer which samples, clients or users took part in training."""
