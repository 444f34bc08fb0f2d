"""The bundled model: what its file holds, and what it says of pictures it never saw."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiers import exhaustive

from ringbatch.engine.demo import digits

FILE = Path(digits.__file__).with_name("digits.npz")


@pytest.fixture(scope="module")
def digits_train() -> Any:
    """The program that trains it; scikit-learn takes half a second to import."""
    return importlib.import_module("examples.digits_train")


@pytest.fixture(scope="module")
def arrays() -> dict[str, NDArray[np.generic]]:
    with np.load(FILE, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def images(arrays: dict[str, NDArray[np.generic]]) -> NDArray[np.float32]:
    """The held-out images as the model takes them."""
    digits.load()
    return np.asarray(arrays["held_out_images"].astype(np.float32) / 16, np.float32)


def test_the_file_holds_these_arrays_and_no_objects(
    arrays: dict[str, NDArray[np.generic]],
) -> None:
    assert {name: (array.dtype.str, array.shape) for name, array in arrays.items()} == {
        "hidden_weights": ("<f4", (64, 256)),
        "hidden_bias": ("<f4", (256,)),
        "score_weights": ("<f4", (256, 10)),
        "score_bias": ("<f4", (10,)),
        "held_out_images": ("|u1", (450, 64)),
        "held_out_labels": ("|u1", (450,)),
    }


def test_the_file_is_small_enough_for_a_repository() -> None:
    assert FILE.stat().st_size < 200_000


def test_the_held_out_images_are_different_real_ones_of_every_digit(
    arrays: dict[str, NDArray[np.generic]],
) -> None:
    held_out, labels = arrays["held_out_images"], arrays["held_out_labels"]
    assert len(np.unique(held_out, axis=0)) == len(held_out)
    assert int(np.max(held_out)) == 16
    assert np.bincount(labels.astype(int)).min() >= 40


def test_held_out_accuracy_is_at_least_0_97(
    arrays: dict[str, NDArray[np.generic]], images: NDArray[np.float32]
) -> None:
    answers = digits.predict(images).argmax(axis=1)
    assert np.mean(answers == arrays["held_out_labels"]) >= 0.97


def test_answers_have_the_declared_type_and_shape(images: NDArray[np.float32]) -> None:
    (image,), (scores,) = digits.inputs, digits.outputs
    answer = digits.predict(images)
    assert images.shape[1:] == image.shape
    assert answer.shape == (len(images), *scores.shape)
    assert answer.dtype == np.dtype(scores.datatype.numpy)


def test_scores_are_probabilities(images: NDArray[np.float32]) -> None:
    scores = digits.predict(images)
    assert scores.min() >= 0
    assert scores.sum(axis=1) == pytest.approx(1, abs=1e-5)


@given(st.lists(st.integers(0, 449), min_size=1, max_size=40))
def test_an_answer_does_not_depend_on_its_company_in_the_batch(places: list[int]) -> None:
    digits.load()
    with np.load(FILE, allow_pickle=False) as archive:
        batch = np.asarray(archive["held_out_images"][places] / 16, np.float32)
    alone = np.concatenate([digits.predict(row[np.newaxis]) for row in batch])
    np.testing.assert_allclose(digits.predict(batch), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e6, 1e6])
def test_pictures_that_are_no_digits_still_get_finite_probabilities(value: float) -> None:
    digits.load()
    scores = digits.predict(np.full((1, 64), value, np.float32))
    assert np.isfinite(scores).all()
    assert scores.sum() == pytest.approx(1, abs=1e-5)


def test_a_warp_by_nothing_changes_nothing(digits_train: Any, images: NDArray[np.float32]) -> None:
    same = digits_train.warped(images, np.random.default_rng(1), 0)
    np.testing.assert_allclose(same, images, atol=1e-6)


def test_a_warp_moves_ink_but_invents_none(digits_train: Any, images: NDArray[np.float32]) -> None:
    moved = digits_train.warped(images, np.random.default_rng(1), digits_train.WARP)
    assert moved.shape == images.shape
    assert moved.dtype == np.float32
    assert not np.allclose(moved, images, atol=0.1)
    assert moved.min() >= 0
    assert moved.max() <= 1 + 1e-6


def test_a_warp_far_beyond_the_image_leaves_paper(digits_train: Any) -> None:
    ink = np.ones((20, 64), np.float32)
    warped = digits_train.warped(ink, np.random.default_rng(1), 1e6)
    assert (warped == 0).mean() > 0.9


def test_the_same_seed_gives_the_same_warp(digits_train: Any, images: NDArray[np.float32]) -> None:
    first, second = (
        digits_train.warped(images[:5], np.random.default_rng(7), 0.2) for _ in range(2)
    )
    assert np.array_equal(first, second)


def test_the_held_out_images_are_those_of_the_split_and_not_trained_on(
    digits_train: Any,
    arrays: dict[str, NDArray[np.generic]],
) -> None:
    training, labels, held_out, held_out_labels = digits_train.split()
    assert len(training) == len(labels) == 1797 - 450
    assert np.array_equal(held_out, arrays["held_out_images"])
    assert np.array_equal(held_out_labels, arrays["held_out_labels"])
    seen = {row.tobytes() for row in np.asarray(training * 16, np.uint8)}
    assert not [row for row in held_out if row.tobytes() in seen]


TRAINING_S: Final = 600
"""A watchdog, many times what it takes: training that hangs fails one test, and does not end the
whole run."""


@exhaustive
@pytest.mark.timeout(2 * TRAINING_S)
def test_a_tenth_of_the_training_learns_the_digits_and_writes_the_same_kind_of_file(
    digits_train: Any,
    arrays: dict[str, NDArray[np.generic]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Threads of the linear algebra would fight over the cores with the other tests.
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    output = tmp_path / "digits.npz"
    subprocess.run(
        [sys.executable, digits_train.__file__, output, "--epochs", "40"],
        env=os.environ | threads,
        check=True,
        timeout=TRAINING_S,
    )
    with np.load(output, allow_pickle=False) as archive:
        made = {name: archive[name] for name in archive.files}
    assert {name: array.dtype for name, array in made.items()} == {
        name: array.dtype for name, array in arrays.items()
    }
    assert np.array_equal(made["held_out_images"], arrays["held_out_images"])
    weights = {name: made[name] for name in made if name.endswith(("weights", "bias"))}
    monkeypatch.setattr(digits, "weights", {})
    images, labels = made["held_out_images"], made["held_out_labels"]
    assert digits_train.accuracy(weights, images, labels) >= 0.93
