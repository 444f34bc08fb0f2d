"""Trains the model that ringbatch bundles and writes its file: weights and held-out images.

    python digits_train.py digits.npz [--epochs N]

Needs scikit-learn, which carries the images: 1,797 handwritten digits of 8x8 pixels, each pixel 0
to 16. A quarter of them is held out, takes no part in the training, and is stored beside the
weights, so that the demo has real images that the model never saw.

The network is one hidden layer. Each epoch sees every training image once, slightly stretched,
sheared and moved anew, and the weights kept are the mean of those after each of the last epochs
(Polyak and Juditsky, 1992). The sizes below were chosen by five-fold cross-validation inside the
training images (mean accuracy 0.986); the held-out ones had no part in the choice.

The split is the same everywhere. The weights differ in their last digits: these depend on the order
in which the linear algebra adds, and so on the processor and the number of threads.
"""

import argparse
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from ringbatch.engine.demo import digits

SIDE: Final = 8
PIXELS: Final = SIDE * SIDE
PIXEL_MAX: Final = 16
DIGITS: Final = 10

HELD_OUT_IMAGES: Final = 450
HIDDEN_UNITS: Final = 256
EPOCHS: Final = 400
AVERAGED_SHARE: Final = 4
"""The weights are averaged over the last of so many equal parts of the epochs."""
WEIGHT_DECAY: Final = 0.01
WARP: Final = 0.15
SEED: Final = 0

Floats = NDArray[np.float32]


def warped(images: Floats, rng: np.random.Generator, amount: float) -> Floats:
    """Each image under an affine map of its own, resampled bilinearly.

    Args:
        images: [count, 64], each row an 8x8 image.
        rng: generator of the maps.
        amount: the largest change of each entry of the 2x2 matrix; the largest move is three
            times that, in pixels. At 0 the images come back as they are.

    Returns:
        [count, 64]; what lies outside the image counts as background, 0.
    """
    count = len(images)
    centre = (SIDE - 1) / 2
    offsets = np.arange(SIDE) - centre
    grid = np.stack(np.meshgrid(offsets, offsets, indexing="ij")).reshape(2, PIXELS)
    matrix = np.eye(2) + rng.uniform(-amount, amount, (count, 2, 2))
    move = rng.uniform(-3 * amount, 3 * amount, (count, 2, 1))

    # A border of background one pixel wide keeps all four neighbours inside the array.
    padded = np.pad(images.reshape(-1, SIDE, SIDE), ((0, 0), (1, 2), (1, 2)))
    source = np.clip(matrix @ grid + move + centre + 1, 0, SIDE + 1)
    corner = source.astype(np.intp)
    (top, left), (down, right) = corner.swapaxes(0, 1), (source - corner).swapaxes(0, 1)
    image = np.arange(count)[:, np.newaxis]
    upper = padded[image, top, left] * (1 - right) + padded[image, top, left + 1] * right
    lower = padded[image, top + 1, left] * (1 - right) + padded[image, top + 1, left + 1] * right
    return np.asarray(upper * (1 - down) + lower * down, np.float32)


def split() -> tuple[Floats, NDArray[np.intp], NDArray[np.uint8], NDArray[np.uint8]]:
    """The training images (0 to 1) and labels, then the held-out images (0 to 16) and labels.

    Both parts hold the ten digits in the same proportions; rows are in random order.
    """
    bunch = load_digits()
    images, held_out, labels, held_out_labels = train_test_split(
        bunch.data,
        bunch.target,
        test_size=HELD_OUT_IMAGES,
        stratify=bunch.target,
        random_state=SEED,
    )
    return (
        np.asarray(images / PIXEL_MAX, np.float32),
        np.asarray(labels, np.intp),
        np.asarray(held_out, np.uint8),
        np.asarray(held_out_labels, np.uint8),
    )


def train(images: Floats, labels: NDArray[np.intp], epochs: int = EPOCHS) -> dict[str, Floats]:
    """The weights by the names under which `digits.npz` holds them."""
    averaged = -(-epochs // AVERAGED_SHARE)
    rng = np.random.default_rng(SEED)
    network = MLPClassifier((HIDDEN_UNITS,), alpha=WEIGHT_DECAY, random_state=SEED)
    names = ("hidden_weights", "score_weights", "hidden_bias", "score_bias")
    sums: dict[str, NDArray[np.float64]] = dict.fromkeys(names, np.zeros(()))
    for epoch in range(epochs):
        network.partial_fit(warped(images, rng, WARP), labels, classes=range(DIGITS))
        if epoch >= epochs - averaged:
            now = (*network.coefs_, *network.intercepts_)
            sums = {name: sums[name] + array for name, array in zip(names, now, strict=True)}
    return {name: np.asarray(sums[name] / averaged, np.float32) for name in names}


def accuracy(
    weights: dict[str, Floats], images: NDArray[np.uint8], labels: NDArray[np.uint8]
) -> float:
    """The share of images (0 to 16) whose highest score is that of their label."""
    digits.weights.update(weights)
    scores = digits.predict(np.asarray(images / PIXEL_MAX, np.float32))
    return float(np.mean(scores.argmax(axis=1) == labels))


def main() -> None:
    """Train, write the file, and print the held-out accuracy."""
    parser = argparse.ArgumentParser(description="Train the digits model that ringbatch bundles.")
    parser.add_argument("output", type=Path, metavar="FILE", help="what is written, a .npz file")
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, metavar="N", help="default: %(default)s"
    )
    given = parser.parse_args()
    output: Path = given.output

    images, labels, held_out, held_out_labels = split()
    weights = train(images, labels, given.epochs)
    with output.open("wb") as file:
        np.savez_compressed(
            file,
            hidden_weights=weights["hidden_weights"],
            hidden_bias=weights["hidden_bias"],
            score_weights=weights["score_weights"],
            score_bias=weights["score_bias"],
            held_out_images=held_out,
            held_out_labels=held_out_labels,
        )
    share = accuracy(weights, held_out, held_out_labels)
    print(f"trained on {len(images)} images; {len(held_out)} held out, accuracy {share:.4f}")
    print(f"wrote {output} ({output.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
