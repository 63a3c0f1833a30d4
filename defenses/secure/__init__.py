"""Secure sums: words modulo 2^bits, masks that cancel, and defenses whose clients add shares of integer noise."""
