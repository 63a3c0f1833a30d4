"""ResNet-18 with group norm in place of batch norm (He et al. 2016; Wu and He 2018)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ...fields import check_count

# As torchvision and most work on CIFAR: images of fewer pixels per side keep their resolution in the first layer.
_LARGE = 64
_PRECISIONS = ("float32", "bfloat16")


def resnet18(
    shape: tuple[int, int, int], classes: int, *, width: int = 64, groups: int = 16, precision: str = "float32"
) -> nn.Module:
    """Build a ResNet-18 whose first stage has ``width`` channels: 11.2 million parameters at 64.

    Batch norm would mix the samples of a batch, so that sample-level DP has no gradient to clip; group norm does not.
    Images of 64 pixels per side or more are first reduced four times (7x7 convolution of stride 2 and pool), smaller
    images not at all (3x3 convolution). ``groups``: of each norm, at most; as many as divide the channels.
    ``precision``: "bfloat16" computes convolutions and the output layer in mixed precision, in half of the time on
    processors that have such instructions; weights and gradients stay in single precision.
    """
    check_count("width", width)
    check_count("groups", groups)
    if precision not in _PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(_PRECISIONS)}, got {precision!r}")
    return _ResNet(shape, classes, width, groups, mixed=precision != "float32")


class _ResNet(nn.Module):
    def __init__(self, shape: tuple[int, int, int], classes: int, width: int, groups: int, *, mixed: bool) -> None:
        super().__init__()
        self.mixed = mixed
        large = min(shape[1:]) >= _LARGE
        kernel, stride = (7, 2) if large else (3, 1)
        self.conv = nn.Conv2d(shape[0], width, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.norm = _norm(width, groups)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        blocks, channels = list[nn.Module](), width
        for stage in range(4):
            for number in range(2):
                wide = width * 2**stage
                blocks.append(_Block(channels, wide, 2 if stage and not number else 1, groups))
                channels = wide
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        # Without its cache: a cast weight that it keeps would belong to another call's gradient.
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.mixed, cache_enabled=False):
            features = self.blocks(self.pool(relu(self.norm(self.conv(images)))))
            logits: Tensor = self.output(features.mean((2, 3)))
        return logits.float() if self.mixed else logits


class _Block(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, channels: int, wide: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, wide, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _norm(wide, groups)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.norm2 = _norm(wide, groups)
        same = stride == 1 and channels == wide
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(channels, wide, 1, stride=stride, bias=False), _norm(wide, groups))
        )

    def forward(self, features: Tensor) -> Tensor:
        inside = self.norm2(self.conv2(relu(self.norm1(self.conv1(features)))))
        return relu(inside + self.shortcut(features))


def _norm(channels: int, groups: int) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(channels, groups), channels)
