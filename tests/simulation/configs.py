"""Configurations of an engine in a life of its supervisor, at first and later."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.config.document import ConfigError
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig

_ELASTIC: Final = 0.5
RANGES: Final = ((0, 2), (1, 3), (2, 4))
"""Ranges for the number of workers, if it is autoscaled."""


def first_config(chance: random.Random, loads: random.Random) -> Config:
    """Return a configuration with one or two models, and every kind of frontend.

    Args:
        chance: decides.
        loads: decides whether the load decides how many workers there are.
    """
    server = ServerConfig(
        port=0,
        grpc_port=0,
        control_port=0,
        frontends=1,
        client_lanes=0,
        max_request_bytes=4096,
        lane_bytes=1 << 16,
        max_in_flight=64,
        drain_s=chance.choice([0.0, 5.0]),
        hang_timeout_s=chance.choice([12, 24]),
    )
    models = [_model("a", workers=chance.choice([1, 2])), _model("b", spares=chance.choice([0, 1]))]
    found = tuple(models[: chance.choice([1, 2])])
    if loads.random() < _ELASTIC:
        found = tuple(replace(model, workers=loads.choice(RANGES)) for model in found)
    return Config(server=server, models=found)


def other_config(config: Config, chance: random.Random, loads: random.Random) -> Config:
    """Return a changed configuration.

    Args:
        config: the first configuration.
        chance, loads: as for `first_config`.

    Raises:
        ConfigError: now and then.
    """
    if chance.random() < 0.1:
        raise ConfigError("[server] it is wrong")
    first, *others = config.models
    first = replace(
        first,
        workers=chance.choice([1, 2, 3]),
        max_batch_size=chance.choice([8, 32]),
        threads=chance.choice([None, None, 2]),
    )
    if loads.random() < _ELASTIC:
        first = replace(first, workers=loads.choice(RANGES))
    new = [_model("c")] * chance.randint(0, 1)
    kept = others if chance.random() < 0.8 else []
    return replace(config, models=(first, *kept, *new))


def _model(name: str, **more: Any) -> ModelConfig:
    path = path_of(name)
    return ModelConfig(name=name, path=path, runtime="python", load_timeout_s=20.0, **more)


def path_of(name: str) -> Path:
    """Return the path of a model's file."""
    return Path(f"/{name}.py")
