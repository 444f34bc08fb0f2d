"""The settings that are tried on a host. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from ringbatch.bench.tuning.candidate import Values

NOT_IN_STEPS: Final = "policy"
"""The factor without effect on a model in steps: a row joins as soon as a place is free."""
_BATCH_SIZES: Final = (1, 4, 8, 16, 32, 64, 128)
_WAITS_MS: Final = (1.0, 3.0)
_WORKERS_MAX: Final = 16
"""Each holds a copy of the model."""
_FRONTENDS_MAX: Final = 8
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def choices_for(cpus: int, keep: Sequence[str] = ()) -> dict[str, list[Values]]:
    """Return the choices of each factor: settings that are chosen together, as they share the CPUs.

    Args:
        cpus: of the host.
        keep: names of settings that stay as they are.
    """
    waits: list[Values] = [{"policy": "fixed", "max_latency_ms": wait} for wait in _WAITS_MS]
    found: dict[str, list[Values]] = {
        "workers and threads": [
            {"workers": workers, "threads": threads}
            for workers in _doubled(min(cpus, _WORKERS_MAX))
            for threads in dict.fromkeys((1, max(cpus // workers, 1)))
        ],
        "max_batch_size": [{"max_batch_size": size} for size in _BATCH_SIZES],
        "frontends": [{"frontends": count} for count in _doubled(min(cpus, _FRONTENDS_MAX))],
        NOT_IN_STEPS: [
            {"policy": "eager"},
            *waits,
        ],
    }
    return {
        factor: values
        for factor, values in found.items()
        if not any(key in keep for value in values for key in value)
    }


def settings_of(chosen: Mapping[str, Values]) -> dict[str, int | float | str]:
    """Return all settings of a candidate."""
    return {key: value for values in chosen.values() for key, value in values.items()}


def flags_of(chosen: Mapping[str, Values]) -> list[str]:
    """Return the choices as flags of ``ringbatch serve``."""
    return [
        word
        for key, value in settings_of(chosen).items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]


def toml_of(chosen: Mapping[str, Values], model: str) -> str:
    """Return the choices as sections of a configuration file."""
    settings = settings_of(chosen)
    server = [f"frontends = {settings.pop('frontends')}"] if "frontends" in settings else []
    own = [
        f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
        for key, value in settings.items()
    ]
    parts = []
    if server:
        parts.append("\n".join(["[server]", *server]))
    if own:
        parts.append("\n".join([f"[models.{_key(model)}]", *own]))
    return "\n\n".join(parts)


def _key(name: str) -> str:
    """Return a name as a key of TOML, in which a dot would begin an inner section."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _doubled(most: int) -> list[int]:
    """Return 1, 2, 4 and so on, and the most."""
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found
