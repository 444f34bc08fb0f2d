"""Documents of a configuration for tests, and what is concluded of them."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.config.document import Config, ConfigError, conclude

BASE = Path("/srv")
WHOLE_64 = (
    "but it must be a whole number from 1 to 64, or the fewest and the most, such as [1, 8] or "
    "[0, 8]"
)


def concluded(text: str) -> Config:
    return conclude(tomllib.loads(text), source="ringbatch.toml", base=BASE, is_file=lambda _: True)


def problems(text: str, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        conclude(
            tomllib.loads(text),
            source="ringbatch.toml",
            base=BASE,
            **{"is_file": lambda _: True} | more,
        )
    return list(caught.value.problems)


def model(line: str) -> str:
    return f'[models.mnist]\npath = "model.py"\n{line}\n'


def server(line: str) -> str:
    return f"[server]\n{line}\n" + model("")
