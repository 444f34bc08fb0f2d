"""The bundled model: what its file holds, and what it says of pictures it never saw."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringbatch.engine import digits, digits_train

FILE = Path(digits.__file__).with_name("digits.npz")


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


def test_a_warp_by_nothing_changes_nothing(images: NDArray[np.float32]) -> None:
    same = digits_train.warped(images, np.random.default_rng(1), 0)
    np.testing.assert_allclose(same, images, atol=1e-6)


def test_a_warp_moves_ink_but_invents_none(images: NDArray[np.float32]) -> None:
    moved = digits_train.warped(images, np.random.default_rng(1), digits_train.WARP)
    assert moved.shape == images.shape
    assert moved.dtype == np.float32
    assert not np.allclose(moved, images, atol=0.1)
    assert moved.min() >= 0
    assert moved.max() <= 1 + 1e-6


def test_a_warp_far_beyond_the_image_leaves_paper() -> None:
    ink = np.ones((20, 64), np.float32)
    warped = digits_train.warped(ink, np.random.default_rng(1), 1e6)
    assert (warped == 0).mean() > 0.9


def test_the_same_seed_gives_the_same_warp(images: NDArray[np.float32]) -> None:
    first, second = (
        digits_train.warped(images[:5], np.random.default_rng(7), 0.2) for _ in range(2)
    )
    assert np.array_equal(first, second)


def test_training_again_on_the_same_split_gives_the_bundled_accuracy(
    arrays: dict[str, NDArray[np.generic]],
) -> None:
    pytest.importorskip("sklearn", reason="needs the train extra")
    training, labels, held_out, held_out_labels = digits_train.split()
    assert np.array_equal(held_out, arrays["held_out_images"])
    assert np.array_equal(held_out_labels, arrays["held_out_labels"])
    seen = {row.tobytes() for row in np.asarray(training * 16, np.uint8)}
    assert not [row for row in held_out if row.tobytes() in seen]
    weights = digits_train.train(training, labels)
    assert digits_train.accuracy(weights, held_out, held_out_labels) >= 0.97
