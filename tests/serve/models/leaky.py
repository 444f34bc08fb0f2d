"""Model that keeps a part of every input, until no memory is left."""

import os

import numpy as np

kept = list[np.ndarray]()


def predict(instances: list[int]) -> list[int]:
    kept.append(np.ones(4 << 20))
    return [os.getpid() for _ in instances]
