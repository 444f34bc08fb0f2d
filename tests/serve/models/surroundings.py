"""Tells the variables of its process's environment."""

import os


def predict(instances: list[str]) -> list[str | None]:
    return [os.environ.get(name) for name in instances]
