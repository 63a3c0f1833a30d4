"""A segmentation model with one logit per pixel (U-Net, after Ronneberger et al. 2015)."""

import torch
from torch import Tensor, nn

# Channels at half of the image's resolution, a quarter and so on.
_WIDTHS = (16, 24, 32, 48)
_STEP = 2 ** len(_WIDTHS)


class UNet(nn.Module):
    """A U-Net that turns images ``(n, c, h, w)`` into one logit per pixel, ``(n, h, w)``.

    On the way down each convolution has stride 2 (4x4 the first, 3x3 the others). On the way up the deeper features are
    enlarged by repeating pixels, concatenated with the features of the way down at this depth, and convolved. There is
    no norm and no buffer: samples have separate gradients, and the parameters determine the model.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = channels
        for depth, width in enumerate(_WIDTHS):
            self.add_module(f"down{depth}", nn.Conv2d(wide, width, 4 if depth == 0 else 3, stride=2, padding=1))
            wide = width
        for depth in reversed(range(len(_WIDTHS) - 1)):
            self.add_module(f"up{depth}", nn.Conv2d(wide + _WIDTHS[depth], _WIDTHS[depth], 3, padding=1))
            wide = _WIDTHS[depth]
        # Four logits at each place of half resolution, one per pixel: a third of the time of full resolution.
        self.output = nn.Conv2d(wide, 4, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        features, left = images, list[Tensor]()
        for depth in range(len(_WIDTHS)):
            features = _bent(self.get_submodule(f"down{depth}")(features))
            left.append(features)
        for depth in reversed(range(len(_WIDTHS) - 1)):
            features = _bent(self.get_submodule(f"up{depth}")(torch.cat([doubled(features), left[depth]], dim=1)))
        return _spread(self.output(features))


def unet(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build a U-Net: 66,116 parameters on one channel.

    Raises:
        ValueError: if the images' sides cannot be halved as often as the U-Net does, or there are more than two
            classes.
    """
    _, height, width = shape
    if height % _STEP or width % _STEP:
        raise ValueError(f"unet needs images whose height and width are multiples of {_STEP}, got shape {shape}")
    if classes != 2:
        raise ValueError(f"classes must be 2 for unet, which separates two classes of pixels, got {classes}")
    return UNet(shape[0])


def doubled(features: Tensor) -> Tensor:
    """Enlarge feature maps by repeating each pixel in both directions.

    ``(n, c, h, w)`` becomes ``(n, c, 2 h, 2 w)``.
    """
    # By views, which all of torch's function transforms can differentiate.
    n, channels, height, width = features.shape
    wide = features[:, :, :, None, :, None].expand(n, channels, height, 2, width, 2)
    return wide.reshape(n, channels, 2 * height, 2 * width)


def _bent(features: Tensor) -> Tensor:
    return nn.functional.leaky_relu(features)


def _spread(features: Tensor) -> Tensor:
    """Four channels ``(n, 4, h, w)`` become the four pixels of their place, row by row, ``(n, 2 h, 2 w)``."""
    n, _, height, width = features.shape
    return features.view(n, 2, 2, height, width).permute(0, 3, 1, 4, 2).reshape(n, 2 * height, 2 * width)
