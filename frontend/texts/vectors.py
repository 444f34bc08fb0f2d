"""Vectors of texts in the results of a model. Pure."""

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.codec.rendering import Results
from ringbatch.shm.errors import InvalidRequest

Vectors = NDArray[np.float32]


def vectors_of(results: Results) -> Vectors:
    """Return the vectors of all parts of a request, a row for each text."""
    rows = [np.frombuffer(result, np.float32).reshape(count, -1) for count, result in results]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def shortened(vectors: Vectors, dimensions: int) -> Vectors:
    """Return the first `dimensions` numbers of each vector, scaled to length 1; 0 is all, as is."""
    if not dimensions or dimensions == vectors.shape[1]:
        return vectors
    return scaled(vectors[:, :dimensions])


def scaled(vectors: Vectors) -> Vectors:
    """Return vectors of length 1."""
    # In base64, NaN and infinity come to what they come to.
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, np.newaxis]
        found: Vectors = vectors / np.maximum(lengths, np.float32(1e-12))
    return found


def expect_dimensions(name: str, wanted: int, dims: int) -> None:
    """Return if vectors have as many dimensions as are wanted.

    Args:
        name: of the member that wants them.
        wanted: the number of dimensions; 0 for all.
        dims: of the model's vectors.

    Raises:
        InvalidRequest: they have fewer.
    """
    if wanted > dims:
        raise InvalidRequest(f'"{name}" is {wanted}, but this model\'s vectors have {dims}')
