"""What each sample adds to the gradient of one parameter, as rows or as factors of a matrix product.

The gradient of a weight matrix is a sum over positions of (output's gradient) times (input). Its norm follows from the
inner products of the two factors alone (Goodfellow 2015; Li et al. 2022 for sequences; Bu et al. 2022 choose the
cheaper of both ways), and its weighted sum over samples is one matrix product (Bu et al. 2023, "book-keeping").
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The gradients of one parameter, one per sample: ``values (m, *shape)``."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each sample's gradient, ``(m,)`` in double precision."""
        norms: Tensor = torch.linalg.vector_norm(self._flat, dim=1, dtype=torch.float64)
        return norms.square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum over samples, ``(numbers,)``; ``weights (m,)``."""
        return weights @ self._flat

    def only(self, chosen: Tensor) -> "Rows":
        """Return the contributions of the samples in the mask ``chosen (m,)``."""
        return Rows(values=self.values[chosen])

    @property
    def _flat(self) -> Tensor:
        # Also for a parameter that is a single number.
        return self.values.reshape(len(self.values), -1)


@dataclass(frozen=True, kw_only=True)
class Factors:
    """The gradients of one weight as products: for each sample and group, ``left`` transposed times ``right``.

    Args:
        left: ``(m, groups, positions, a)``; or for an embedding the looked-up rows ``(m, 1, positions)``, integers
            below ``a``, which stand for one-hot vectors.
        right: ``(m, groups, positions, b)``.
        a: rows of one group of the weight.
    """

    left: Tensor
    right: Tensor
    a: int

    @property
    def looked_up(self) -> bool:
        """Whether ``left`` holds the indices of an embedding."""
        return not self.left.is_floating_point()

    def rows(self) -> Rows:
        """Return every sample's gradient, ``(m, groups * a, b)``."""
        samples, groups, _, b = self.right.shape
        if self.looked_up:
            held = self.right.new_zeros(samples, self.a, b)
            index = self.left[:, 0, :, None].expand(-1, -1, b)
            return Rows(values=held.scatter_add_(1, index, self.right[:, 0]))
        return Rows(values=(self.left.transpose(2, 3) @ self.right).reshape(samples, groups * self.a, b))

    def cheapest(self) -> "Rows | Factors":
        """Return the rows where they need less memory than the inner products of all pairs of positions."""
        positions, b = self.right.shape[2:]
        return self.rows() if self.a * b <= 2 * positions**2 else self

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each sample's gradient, ``(m,)`` in double precision.

        It is the sum over all pairs of positions of the two factors' inner products.
        """
        if self.looked_up:
            alike: Tensor = self.left.unsqueeze(-1) == self.left.unsqueeze(-2)
        else:
            alike = self.left @ self.left.transpose(2, 3)
        products = alike * (self.right @ self.right.transpose(2, 3))
        # Opposite terms may cancel to slightly less than zero.
        return products.sum((1, 2, 3), dtype=torch.float64).clamp_min(0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum over samples, ``(numbers,)``; ``weights (m,)``."""
        groups, b = self.right.shape[1], self.right.shape[3]
        right = (self.right * weights.view(-1, 1, 1, 1)).transpose(0, 1).reshape(groups, -1, b)
        if self.looked_up:
            return right.new_zeros(self.a, b).index_add_(0, self.left.flatten(), right[0]).flatten()
        left = self.left.transpose(0, 1).reshape(groups, -1, self.a)
        return (left.transpose(1, 2) @ right).flatten()

    def only(self, chosen: Tensor) -> "Factors":
        """Return the contributions of the samples in the mask ``chosen (m,)``."""
        return Factors(left=self.left[chosen], right=self.right[chosen], a=self.a)


Contribution = Rows | Factors


def together(uses: Sequence[Contribution]) -> Contribution:
    """Return the sum of what several uses of one parameter contribute, as for tied weights or a repeated layer.

    Gradients are added before any norm is taken: the squared norm of a sum is not the sum of squared norms.
    """
    if len(uses) == 1:
        return uses[0].cheapest() if isinstance(uses[0], Factors) else uses[0]
    factors = [use for use in uses if isinstance(use, Factors)]
    if len(factors) < len(uses):
        rows = [use.rows() if isinstance(use, Factors) else use for use in uses]
        return Rows(values=torch.stack([row.values.flatten(1) for row in rows]).sum(0))
    # More positions of the same product; an embedding's indices become one-hot vectors beside a linear layer's.
    if not all(use.looked_up for use in factors):
        factors = [_dense(use) for use in factors]
    return Factors(
        left=torch.cat([use.left for use in factors], dim=2),
        right=torch.cat([use.right for use in factors], dim=2),
        a=factors[0].a,
    ).cheapest()


def _dense(use: Factors) -> Factors:
    if not use.looked_up:
        return use
    return Factors(left=one_hot(use.left, use.a).to(use.right.dtype), right=use.right, a=use.a)
