"""Secure sum: words modulo 2^bits, masks that cancel, exact integer noise, and the noise that a budget needs."""
