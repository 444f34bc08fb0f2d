"""Answers with what it was given, except for some words that make it misbehave."""

import time
from typing import Any

from ringbatch.engine import InvalidInput


def predict(instances: list[Any]) -> list[Any]:
    answers = []
    for instance in instances:
        if instance == "raise":
            raise ValueError("a secret of the model's")
        if instance == "refuse":
            raise InvalidInput("no mood for <this>")
        if instance == "sleep":
            time.sleep(1.2)
        answers += [instance] if instance != "lose" else []
    return [float("nan") if answer == "nan" else answer for answer in answers]
