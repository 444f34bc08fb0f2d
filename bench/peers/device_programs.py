"""Programs of torch for a device: networks with made-up weights, by name."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import nn

_MEANS: Final = (123.675, 116.28, 103.53)
_DEVIATIONS: Final = (58.395, 57.12, 57.375)
"""Standard deviations of ImageNet's pixels, by colour."""


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Block of ResNet50."""

    def __init__(self, taken: int, width: int, stride: int) -> None:
        super().__init__()
        given = 4 * width
        self.way = nn.Sequential(
            *(nn.Conv2d(taken, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, given, 1, bias=False), nn.BatchNorm2d(given)),
        )
        same = taken == given and stride == 1
        self.past = nn.Identity() if same else nn.Conv2d(taken, given, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.way(x) + self.past(x))


def residual(width: int, blocks: Sequence[int]) -> Any:
    """Return a network like ResNet50, which has the width 64 and 3, 4, 6 and 3 blocks."""
    layers: list[Any] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)]
    layers += [nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    taken = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            own = width << stage
            layers.append(Bottleneck(taken, own, 2 if stage and not block else 1))
            taken = 4 * own
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(taken, 1000))


class Encoder(nn.Module):  # type: ignore[misc]
    """Transformer over 32 tokens that one vector becomes."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Linear(256, width)
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        return self.layers(self.first(x).unsqueeze(1).expand(-1, 32, -1)).mean(1)


class OfPixels(nn.Module):  # type: ignore[misc]
    """Network behind pixels of uint8, which it normalizes."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("means", torch.tensor(_MEANS).view(3, 1, 1))
        self.register_buffer("deviations", torch.tensor(_DEVIATIONS).view(3, 1, 1))

    def forward(self, x: Any) -> Any:
        return self.network((x.float() - self.means) / self.deviations)


class Program(NamedTuple):
    """A program.

    Attributes:
        shape: of a row.
        dtype: of its numbers, as numpy names it.
        make: makes the module.
    """

    shape: tuple[int, ...]
    dtype: str
    make: Callable[[], Any]


def resnet50() -> Any:
    return residual(64, (3, 4, 6, 3))


def small() -> Any:
    return residual(8, (1, 1))


def to_image(width: int) -> Any:
    """Return a network whose results are images of the size of its rows."""
    return nn.Sequential(
        *(nn.Conv2d(3, width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()),
        nn.Conv2d(width, 3, 3, padding=1),
    )


PROGRAMS: Final = {
    "resnet50": Program((3, 224, 224), "float32", resnet50),
    "resnet50-uint8": Program((3, 224, 224), "uint8", lambda: OfPixels(resnet50())),
    "encoder": Program((256,), "float32", lambda: Encoder(384, 6)),
    "mlp": Program(
        (256,), "float32", lambda: nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    ),
    "image-to-image": Program((3, 224, 224), "float32", lambda: to_image(32)),
    "small": Program((3, 32, 32), "float32", small),
    "small-uint8": Program((3, 32, 32), "uint8", lambda: OfPixels(small())),
    "small-to-image": Program((3, 32, 32), "float32", lambda: to_image(8)),
}


class Named(nn.Module):  # type: ignore[misc]
    """Module whose input is called x."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any) -> Any:
        return self.network(x)


def written(name: str, file: Path) -> Any:
    """Write a program to a file; return its module."""
    program = PROGRAMS[name]
    torch.manual_seed(0)
    module = Named(program.make()).eval()
    batch = torch.export.Dim("batch", max=4096)
    example = (torch.zeros((4, *program.shape), dtype=getattr(torch, program.dtype)),)
    torch.export.save(torch.export.export(module, example, dynamic_shapes=({0: batch},)), file)
    return module
