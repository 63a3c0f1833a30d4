"""Priors of images, fitted to public images: minus the log density of an image, in nats up to a constant."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

# A grey value: smaller differences do not occur in 8-bit images.
_GREY = 1 / 255


@dataclass(frozen=True, kw_only=True)
class GaussianPrior:
    """A prior under which pixels are jointly normal around a mean public image, with the shrunken covariance of all
    public images (Ledoit and Wolf 2004), which is invertible for any number of images.

    Args:
        mean: (pixels,), or (n, k, pixels) for candidates with their own means.
        class_means: (classes, pixels).
        precision: (pixels, pixels), inverse of the covariance.
    """

    mean: Tensor
    class_means: Tensor
    precision: Tensor

    @classmethod
    def of(cls, public: Tensor, labels: Tensor, classes: int) -> "GaussianPrior":
        """Fit the prior to public images ``(m, c, h, w)`` with ``labels (m,)``; a class without public images gets the
        mean of all.
        """
        from sklearn.covariance import ledoit_wolf  # Imported late: half a second.

        flat = public.flatten(1).double().cpu().numpy()
        covariance = np.asarray(ledoit_wolf(flat)[0], dtype=np.float64)
        # Without this term, identical public images would make every other image impossible.
        precision = np.linalg.inv(covariance + np.eye(len(covariance)) * _GREY**2)
        same = [labels.cpu().numpy() == label for label in range(classes)]
        means = np.stack([flat[rows if rows.any() else slice(None)].mean(0) for rows in same])
        return cls(
            mean=torch.from_numpy(flat.mean(0)).to(public),
            class_means=torch.from_numpy(means).to(public),
            precision=torch.from_numpy(precision).to(public),
        )

    def given(self, labels: Tensor) -> "GaussianPrior":
        """Return the prior whose mean for each image averages the class means of public images with the image's label
        probabilities ``labels (n, k, classes)`` as weights.
        """
        return replace(self, mean=labels.to(self.class_means) @ self.class_means)

    def values(self, images: Tensor) -> Tensor:
        """Compute minus the log density of candidate ``images (n, k, c, h, w)``, summed over the k images, shape
        ``(n,)``.
        """
        away = images.flatten(2) - self.mean
        return 0.5 * ((away @ self.precision) * away).sum((1, 2))


@dataclass(frozen=True, kw_only=True)
class FlatPrior:
    """A Gaussian prior that also models flat areas of images, in which neighbouring pixels differ less.

    The difference of two neighbouring pixels belongs to a flat area with probability ``share``. It is Laplace with
    scale ``flat`` in a flat area and with scale ``wide`` elsewhere.

    The Gaussian already describes the wide differences. A difference d adds what flat areas change,
    ``ln(1 + (share wide) / ((1 - share) flat) exp(-|d| (1 / flat - 1 / wide)))``. Each pixel has one difference down
    and one across; each counts half, so that there is one term per pixel.
    """

    gaussian: GaussianPrior
    share: float
    flat: float
    wide: float

    @classmethod
    def of(cls, public: Tensor, gaussian: GaussianPrior) -> "FlatPrior":
        """Fit the prior to public images of shape ``(m, c, h, w)`` by 30 steps of expectation maximisation.

        The width of flat areas is not fitted: it is one grey value.
        """
        parts = [public.diff(dim=-2).abs().flatten(), public.diff(dim=-1).abs().flatten()]
        counts = torch.bincount((torch.cat(parts) / _GREY).round().long().cpu()).double()
        sizes, share, wide = _GREY * torch.arange(len(counts)), 0.5, 0.5
        for _ in range(30):
            of_flat = torch.sigmoid(math.log(share * wide / ((1 - share) * _GREY)) - sizes * (1 / _GREY - 1 / wide))
            # Public images may be flat everywhere or nowhere.
            share = min(max(float((counts * of_flat).sum() / counts.sum()), 0.01), 0.99)
            others = counts * (1 - of_flat)
            wide = max(float((others * sizes).sum() / others.sum()), 2 * _GREY)
        return cls(gaussian=gaussian, share=share, flat=_GREY, wide=wide)

    def seen_at(self, resolution: float) -> "FlatPrior":
        """Return the prior for uploads that reveal pixel differences only down to ``resolution``: differences within
        flat areas get at least this scale; if ``resolution`` is too coarse, these areas are not modelled apart.

        A sharp peak attracts the mode but not the mean: a peak wider than the uploads can show would also attract
        images that are flat nowhere.
        """
        return replace(self, flat=min(max(self.flat, resolution), self.wide))

    def given(self, labels: Tensor) -> "FlatPrior":
        """Return the prior whose mean for each image averages the class means of public images with the image's label
        probabilities ``labels (n, k, classes)`` as weights.
        """
        return replace(self, gaussian=self.gaussian.given(labels))

    def values(self, images: Tensor) -> Tensor:
        """Compute minus the log density of candidate ``images (n, k, c, h, w)``, summed over the k images, shape
        ``(n,)``.
        """
        added = self._added(images.diff(dim=-2)) + self._added(images.diff(dim=-1))
        return self.gaussian.values(images) - added / 2

    def _added(self, differences: Tensor) -> Tensor:
        most = math.log(self.share * self.wide / ((1 - self.share) * self.flat))
        return softplus(most - differences.abs() * (1 / self.flat - 1 / self.wide)).flatten(1).sum(1)


@dataclass(frozen=True, kw_only=True)
class TotalVariationPrior:
    """A prior under which differences of neighbouring pixels have a Laplace distribution around 0, with the same mean
    absolute difference as in public images.

    Each pixel has one difference down and one across; their densities count half each, so that there is one per pixel.
    """

    mean_difference: float

    @classmethod
    def of(cls, public: Tensor) -> "TotalVariationPrior":
        """Fit the prior to public images of shape ``(m, c, h, w)``."""
        parts = [public.diff(dim=-2).abs().flatten(), public.diff(dim=-1).abs().flatten()]
        return cls(mean_difference=max(float(torch.cat(parts).double().mean()), _GREY))

    def given(self, labels: Tensor) -> "TotalVariationPrior":
        """Return the same prior, because it does not depend on labels."""
        return self

    def values(self, images: Tensor) -> Tensor:
        """Compute minus the log density of candidate ``images (n, k, c, h, w)``, summed over the k images, shape
        ``(n,)``.
        """
        differences = images.diff(dim=-2).abs().flatten(1).sum(1) + images.diff(dim=-1).abs().flatten(1).sum(1)
        return differences / (2 * self.mean_difference)


Prior = GaussianPrior | FlatPrior | TotalVariationPrior
