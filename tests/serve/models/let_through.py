"""Answers in parts, each behind the first once a file named by its number stands in a folder."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MADE_BY = "old"


def predict(instances: list[Any]) -> Iterator[list[str]]:
    folder, count = instances[0]
    for number in range(count):
        while number and not (Path(folder) / str(number)).exists():
            time.sleep(0.005)
        yield [f"{MADE_BY} {number}"] * len(instances)
