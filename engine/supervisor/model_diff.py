"""What has to be done so that a running engine serves what its configuration says now. Pure.

A version of a model is loaded anew where anything of it changed but what can be changed under its
workers: how its batches are formed, its limits of time, and how many workers it has.
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
        "kserve_errors",
        "max_batch_size",
        "max_latency_ms",
        "policy",
        "ray_workers",
        "scale_down_after_s",
        "scale_up_after_s",
        "spares",
        "target_wait_ms",
        "timeout_s",
        "workers",
    }
)
"""Settings of a model that change without loading it again."""
_COMPARED_AT_LOAD: Final = ("onnx", "openvino", "torch")
"""The runtimes that compare max_batch_size with the file."""
_LIMITS: Final = frozenset({"timeout_s", "batch_timeout_s"})
_TOLD_AT_LOAD: Final = {"http": _LIMITS, "ray": _LIMITS | {"max_batch_size"}}
"""What else the workers of a runtime know from the start."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one model, all at once.

    Attributes:
        name: the model's.
        load: versions to be loaded; one that serves already is replaced.
        adjust: versions that go on with other settings.
        retire: names of the versions that serve no longer.
        running: of the load's choice, how many workers are to run for versions that are adjusted;
            where it is silent, as many as do, within what is configured.
    """

    name: str
    load: tuple[ModelConfig, ...] = ()
    adjust: tuple[ModelConfig, ...] = ()
    retire: tuple[str, ...] = ()
    running: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.load or self.adjust or self.retire)

    def described(self) -> str:
        """What it comes to, once it is done."""
        done = [(f"version {model.version}", "loaded") for model in self.load]
        done += [(f"version {model.version}", "adjusted") for model in self.adjust]
        done += [(f"version {version}", "unloaded") for version in self.retire]
        return f"{self.name}: " + ", ".join(f"{what} {how}" for what, how in done)


@dataclass(frozen=True, slots=True)
class ChainChange:
    """What becomes of one chain.

    Attributes:
        name: the chain's.
        put: what it is to be; None where it is to serve no longer.
    """

    name: str
    put: ChainConfig | None

    def described(self) -> str:
        """As of `Change`."""
        return f"{self.name}: {'unloaded' if self.put is None else 'loaded'}"


class UnknownModel(Exception):
    """There is no model of that name. The text is for people."""

    def __init__(self, name: str, known: Iterable[ModelConfig], who: str) -> None:
        names = ", ".join(dict.fromkeys(model.name for model in known)) or "none"
        super().__init__(f'{who} no model "{name}"; there is: {names}')


class UnfitSize(Exception):
    """No model can be loaded with that `max_batch_size`. The text is for people."""


def retirement(name: str, serving: Collection[ModelConfig]) -> Change:
    """The change after which a model serves no longer.

    Raises:
        UnknownModel: it does not serve.
    """
    own = tuple(model.version for model in serving if model.name == name)
    if not own:
        raise UnknownModel(name, serving, "the engine serves")
    return Change(name, retire=own)


def loading(name: str, serving: Iterable[ModelConfig], wanted: Collection[ModelConfig]) -> Change:
    """The change that loads one model as it is wanted, whether anything of it has changed or not.

    Raises:
        UnknownModel: it is not wanted.
    """
    own = [model for model in wanted if model.name == name]
    if not own:
        raise UnknownModel(name, wanted, "the configuration has")
    (change,) = compare((model for model in serving if model.name == name), own, lambda _: True)
    return change


def with_batch_size(wanted: Iterable[ModelConfig], name: str, size: int) -> list[ModelConfig]:
    """What is wanted, with that `max_batch_size` for one model.

    Raises:
        UnfitSize: it does not go with what else is configured.
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
    """All changes, of models and of chains, in an order in which each chain has its steps.

    Args:
        changes: those of models.
        serving: the chains that serve now.
        wanted: those that are to serve.
    """
    have = {chain.name: chain for chain in serving}
    want = {chain.name: chain for chain in wanted}
    # What takes the place of something else of its name ends that itself, once it can serve.
    models = {change.name: change for change in changes if change.name not in want}
    becomes = {change.name for change in changes if change.name in want}
    gone = [ChainChange(n, None) for n in have if n not in want and n not in models]
    put = [ChainChange(name, chain) for name, chain in want.items() if have.get(name) != chain]
    put.sort(key=lambda change: change.name in becomes)
    # A chain goes before its steps change; a model, once no chain has it as a step.
    loads = [change for change in models.values() if change.load or change.adjust]
    loads.sort(key=lambda change: change.name not in have)
    return [*gone, *loads, *put, *(change for change in models.values() if change not in loads)]


def compare(
    serving: Iterable[ModelConfig],
    wanted: Iterable[ModelConfig],
    anew: Callable[[ModelConfig], bool],
) -> list[Change]:
    """The changes that lead from what serves to what is wanted, one for each model concerned.

    Args:
        serving: what serves now.
        wanted: what is to serve.
        anew: whether a version that serves and whose configuration has not changed is to be loaded
            again all the same, because its file did.
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
    """Whether workers that hold the old one are no good for the new one."""
    told_at_load = _TOLD_AT_LOAD.get("ray" if any(new.in_ray) else new.platform, frozenset())
    live = LIVE - told_at_load
    if not worker_places.agree(old.in_ray, new.in_ray):
        return True
    if differing(old, new) - live or bool(old.max_batch_size) != bool(new.max_batch_size):
        return True
    return new.max_batch_size > old.max_batch_size and new.loader in _COMPARED_AT_LOAD


def differing(old: ModelConfig | ServerConfig, new: ModelConfig | ServerConfig) -> set[str]:
    """The settings in which two sections of one kind differ."""
    names = (each.name for each in fields(old))
    return {name for name in names if getattr(old, name) != getattr(new, name)}
