"""Differences between served and configured models, as changes to carry out. Pure.

A version of a model is loaded again if any of its settings changed, except those that can change
under its workers: batching, time limits, and the number of workers.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from ringbatch.engine.config import shape_rules, worker_places
from ringbatch.engine.config.chained import ChainConfig
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.settings import ModelConfig, ServerConfig

LIVE: Final = frozenset(
    {
        "batch_timeout_s",
        "default_version",
        "first_part_timeout_s",
        "kserve_errors",
        "max_batch_size",
        "max_latency_ms",
        "max_queue_wait_s",
        "part_gap_timeout_s",
        "policy",
        "ray_workers",
        "scale_down_after_s",
        "scale_up_after_s",
        "spares",
        "stream_stall_s",
        "target_wait_ms",
        "timeout_s",
        "workers",
    }
)
"""Settings of a model that change without loading it again."""
_COMPARED_AT_LOAD: Final = ("onnx", "openvino", "torch")
"""The runtimes that compare max_batch_size with the file."""
_LIMITS: Final = frozenset({"timeout_s", "batch_timeout_s"})
_SENT_AT_LOAD: Final = {"http": _LIMITS, "ray": _LIMITS | {"max_batch_size"}}
"""Further settings that the workers of a runtime get at their start only."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one model, which takes effect at once.

    Attributes:
        name: the model's.
        load: versions to be loaded; a serving one is replaced.
        adjust: versions that go on with other settings.
        retire: names of the versions that serve no longer.
        running: the number of workers that the load wants of adjusted versions; others keep theirs,
            within the configured range.
    """

    name: str
    load: tuple[ModelConfig, ...] = ()
    adjust: tuple[ModelConfig, ...] = ()
    retire: tuple[str, ...] = ()
    running: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.load or self.adjust or self.retire)

    def described(self) -> str:
        """Return the outcome of the change, as text."""
        done = [(f"version {model.version}", "loaded") for model in self.load]
        done += [(f"version {model.version}", "adjusted") for model in self.adjust]
        done += [(f"version {version}", "unloaded") for version in self.retire]
        return f"{self.name}: " + ", ".join(f"{subject} {how}" for subject, how in done)


@dataclass(frozen=True, slots=True)
class ChainChange:
    """Change of one chain.

    Attributes:
        name: the chain's.
        put: its new settings; None to remove it.
    """

    name: str
    put: ChainConfig | None

    def described(self) -> str:
        """Return the outcome of the change, as text."""
        return f"{self.name}: {'unloaded' if self.put is None else 'loaded'}"


class UnknownModel(Exception):
    """Error for an unknown model name, with a text that says so."""

    def __init__(self, name: str, known: Iterable[ModelConfig], subject: str) -> None:
        names = ", ".join(dict.fromkeys(model.name for model in known)) or "none"
        super().__init__(f'{subject} no model "{name}"; there is: {names}')


class UnfitSize(Exception):
    """No model can be loaded with that `max_batch_size`; the text says why."""


def retirement(name: str, serving: Collection[ModelConfig]) -> Change:
    """Return the change that removes a model.

    Raises:
        UnknownModel: it does not serve.
    """
    own = tuple(model.version for model in serving if model.name == name)
    if not own:
        raise UnknownModel(name, serving, "the engine serves")
    return Change(name, retire=own)


def loading(name: str, serving: Iterable[ModelConfig], wanted: Collection[ModelConfig]) -> Change:
    """Return the change that loads one model as configured, even if nothing of it has changed.

    Raises:
        UnknownModel: it is not configured.
    """
    own = [model for model in wanted if model.name == name]
    if not own:
        raise UnknownModel(name, wanted, "the configuration has")
    (change,) = compare((model for model in serving if model.name == name), own, lambda _: True)
    return change


def with_batch_size(wanted: Iterable[ModelConfig], name: str, size: int) -> list[ModelConfig]:
    """Return the wanted models, one of them with another `max_batch_size`.

    Raises:
        UnfitSize: it conflicts with other settings.
    """
    kind = settings(ModelConfig)["max_batch_size"].kind
    if not kind.accepts(size):
        raise UnfitSize(f"max_batch_size: found {size}, but it must be {kind.words}")
    found = [
        replace(model, max_batch_size=size) if model.name == name else model for model in wanted
    ]
    for model in found:
        if model.name == name:
            for key, words in shape_rules.problems(
                {field.name: getattr(model, field.name) for field in fields(model)}
            ):
                raise UnfitSize(f"{key}: {words}")
    return found


def with_chains(
    changes: Collection[Change],
    serving: Iterable[ChainConfig],
    wanted: Iterable[ChainConfig],
) -> list[Change | ChainChange]:
    """Return all changes, of models and of chains, in an order in which each chain has its steps.

    Args:
        changes: those of models.
        serving: the chains that serve now.
        wanted: the configured chains.
    """
    have = {chain.name: chain for chain in serving}
    want = {chain.name: chain for chain in wanted}
    # A model or chain that replaces another of its name ends that itself, once it can serve.
    models = {change.name: change for change in changes if change.name not in want}
    becomes = {change.name for change in changes if change.name in want}
    gone = [ChainChange(n, None) for n in have if n not in want and n not in models]
    put = [ChainChange(name, chain) for name, chain in want.items() if have.get(name) != chain]
    put.sort(key=lambda change: change.name in becomes)
    # Chains are removed before their steps change, and models once no chain has them as a step.
    loads = [change for change in models.values() if change.load or change.adjust]
    loads.sort(key=lambda change: change.name not in have)
    return [*gone, *loads, *put, *(change for change in models.values() if change not in loads)]


def compare(
    serving: Iterable[ModelConfig],
    wanted: Iterable[ModelConfig],
    anew: Callable[[ModelConfig], bool],
) -> list[Change]:
    """Return the changes from the serving to the wanted models, one for each model concerned.

    Args:
        serving: the models that serve now.
        wanted: the configured models.
        anew: returns True if a serving version with the same settings is to be loaded again,
            because its file changed.
    """
    have: dict[str, dict[str, ModelConfig]] = {}
    want: dict[str, dict[str, ModelConfig]] = {}
    for found, models in ((have, serving), (want, wanted)):
        for model in models:
            found.setdefault(model.name, {})[model.version] = model
    changes = (
        _change(name, have.get(name, {}), want.get(name, {}), anew)
        for name in dict.fromkeys((*want, *have))
    )
    return [change for change in changes if change]


def _change(
    name: str,
    have: dict[str, ModelConfig],
    want: dict[str, ModelConfig],
    anew: Callable[[ModelConfig], bool],
) -> Change:
    load, adjust = [], []
    for version, model in want.items():
        old = have.get(version)
        if old is None or must_load(old, model) or anew(old):
            load.append(model)
        elif old != model:
            adjust.append(model)
    retire = tuple(version for version in have if version not in want)
    return Change(name, tuple(load), tuple(adjust), retire)


def must_load(old: ModelConfig, new: ModelConfig) -> bool:
    """Return whether the new settings need other workers than the old ones."""
    sent_at_load = _SENT_AT_LOAD.get("ray" if any(new.in_ray) else new.platform, frozenset())
    live = LIVE - sent_at_load
    if not worker_places.agree(old.in_ray, new.in_ray):
        return True
    if differing(old, new) - live or bool(old.max_batch_size) != bool(new.max_batch_size):
        return True
    return new.max_batch_size > old.max_batch_size and new.loader in _COMPARED_AT_LOAD


def differing(old: ModelConfig | ServerConfig, new: ModelConfig | ServerConfig) -> set[str]:
    """Return the settings in which two sections of one kind differ."""
    names = (each.name for each in fields(old))
    return {name for name in names if getattr(old, name) != getattr(new, name)}
