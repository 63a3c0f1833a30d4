"""Flip every bit of a value's one-hot vector at random (unary encoding: Wang, Blocki, Li, Jha 2017)."""

from dataclasses import dataclass

import numpy as np

from ..randomiser import FlippedBits, Flips, PairLaw, all_bits

ENCODINGS = ("optimised", "symmetric")


@dataclass(frozen=True, kw_only=True)
class Unary(FlippedBits):
    """A randomiser of values 0..domain-1 whose reports are bits of shape (domain,); the randomiser estimates the
    value's one-hot encoding.

    ``symmetric``: every bit is flipped with probability 1 / (1 + e^(epsilon / 2)); ``optimised``: the one with 1 / 2, a
    zero with 1 / (1 + e^epsilon), which has less variance. Two values differ in two bits, so both have exactly epsilon.

    Args:
        domain: number of values, >= 2.
        encoding: "optimised" or "symmetric".
    """

    encoding: str = "optimised"
    source = "Wang, Blocki, Li, Jha 2017, SUE and OUE"
    closed = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {self.encoding!r}")

    @property
    def flips(self) -> Flips:
        if self.encoding == "symmetric":
            return Flips(of_one=self.epsilon / 2, of_zero=self.epsilon / 2)
        return Flips(of_one=0.0, of_zero=self.epsilon)

    def pair_law(self) -> PairLaw:
        """Return the distribution of the two reported bits in which the member's and the nonmember's encodings differ;
        all other bits have the same distribution under both values.
        """
        # Two values differ in two bits only, so four outcomes suffice for any domain.
        bits, first = all_bits(2).reports, np.array([1, 0], dtype=np.int8)
        member, nonmember = (self.flips.log_mass(bits, hot) for hot in (first, first[::-1]))
        return PairLaw(member - nonmember, np.exp(member), np.exp(nonmember))
