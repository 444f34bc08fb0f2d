"""Trains a small convolutional network on handwritten digits and exports it for the runtime torch.

    python digits_to_pt2.py digits.pt2

Needs torch, and scikit-learn, which carries the images: 1,797 digits of 8x8 pixels.
"""

import sys
from pathlib import Path
from typing import Any, Final

import torch
from sklearn.datasets import load_digits
from torch import nn

PIXEL_MAX: Final = 16
EPOCHS: Final = 4
BATCH: Final = 32
RATE: Final = 2e-3
HELD_OUT: Final = 4
"""Every fourth image is kept out of the training."""


def network() -> Any:
    """Images [batch, 1, 8, 8], from 0, which is paper, to 1, ink; scores [batch, 10]."""
    return nn.Sequential(
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 16, 10),
    )


def images() -> tuple[Any, Any]:
    """All images, FP32 [1797, 1, 8, 8], and which digit each shows."""
    digits = load_digits()
    pixels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / PIXEL_MAX
    return pixels, torch.tensor(digits.target)


def trained(epochs: int = EPOCHS) -> Any:
    """The network, after it has seen every training image `epochs` times."""
    torch.manual_seed(0)
    pixels, digits = images()
    chosen = torch.arange(len(pixels)) % HELD_OUT != 0
    pixels, digits = pixels[chosen], digits[chosen]
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(epochs):
        for picked in torch.randperm(len(pixels)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels[picked]), digits[picked]).backward()
            optimizer.step()
    return model.eval()


class Classifier(nn.Module):
    """The network as it is served, taking ``image`` and returning ``scores``."""

    def __init__(self, layers: Any) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """The probability of each digit."""
        return {"scores": self.layers(image).softmax(1)}


def export(model: Any, path: Path) -> None:
    """Write the network as an exported program that takes batches of any size."""
    program = torch.export.export(
        Classifier(model),
        (torch.zeros(2, 1, 8, 8),),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    torch.export.save(program, path)


if __name__ == "__main__":
    export(trained(), Path(sys.argv[1]))
