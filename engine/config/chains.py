"""Reader of chains: sections of models with `steps` in place of a path; reports their problems."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from ringbatch.engine.config import unknown_keys
from ringbatch.engine.config.chained import ChainConfig, StepConfig
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.problems import Place, Problems, in_toml, quoted
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.shm.chain import MAX_STEPS

STEPS: Final = "steps"
"""The key that makes a section a chain's."""
_KEYS: Final = (STEPS, "returns", "timeout_s", "kserve_errors")
_STEP_KEYS: Final = ("model", "version", "inputs", "outputs")
_STEPS_WORDS: Final = (
    f'a list of 1 to {MAX_STEPS} steps, each the name of a model, as in ["tokenize", "encode"], or '
    'a table as { model = "encode", inputs = { ids = "tokens" } }'
)
_NAMES_WORDS: Final = 'a table of names, as { ids = "tokens" }'


def is_chain(section: object) -> bool:
    """Return whether a section of the models is a chain's."""
    return isinstance(section, dict) and STEPS in section


def read_all(
    sections: Mapping[str, Any], models: Iterable[Mapping[str, Any]], report: Problems
) -> tuple[ChainConfig, ...]:
    """Return the chains among the sections of the models.

    Args:
        sections: by name.
        models: the values of every version of those that are no chains.
        report: takes the problems.
    """
    known: dict[str, list[str] | None] = {
        name: None if is_chain(section) else [] for name, section in sections.items()
    }
    for model in models:
        if (versions := known[model["name"]]) is not None:
            versions.append(model["version"])
    found = (
        _read(name, section, known, report)
        for name, section in sections.items()
        if is_chain(section)
    )
    return tuple(chain for chain in found if chain is not None)


def _read(
    name: str,
    raw: Mapping[str, Any],
    versions: Mapping[str, Collection[str] | None],
    report: Problems,
) -> ChainConfig | None:
    """Return a chain; None, with problems in the report, if it cannot be one.

    Args:
        name: its name.
        raw: its section.
        versions: those of each model of the document; None of a chain.
        report: takes the problems.
    """
    place: Place = ("models", name)
    for key in raw:
        if key not in _KEYS:
            report.add((*place, key), _misplaced(key))
    values: dict[str, Any] = {}
    known = settings(ModelConfig)
    for key in ("timeout_s", "kserve_errors"):
        if key in raw:
            kind = known[key].kind
            if kind.accepts(raw[key]):
                values[key] = kind.store(raw[key])
            else:
                report.refuse((*place, key), quoted(raw[key]), kind.words)
    returns = raw.get("returns", [])
    if not _are_names(returns) or len(set(returns)) < len(returns):
        words = 'a list of names of tensors, each once, as in ["label", "score"]'
        report.refuse((*place, "returns"), quoted(returns), words)
        returns = []
    listed = raw[STEPS]
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_STEPS:
        report.refuse((*place, STEPS), quoted(listed), _STEPS_WORDS)
        return None
    steps = []
    for number, given in enumerate(listed, 1):
        if isinstance(given, str):
            given = {"model": given}
        problems = [*_problems(given, name, versions)]
        for words in problems:
            report.add((*place, STEPS), f"step {number}: {words}")
        if not problems:
            steps.append(_step(given))
    if len(steps) < len(listed):
        return None
    return ChainConfig(name=name, steps=tuple(steps), returns=tuple(returns), **values)


def described(chain: ChainConfig) -> Iterator[str]:
    """Yield the lines of a chain's section."""
    section: dict[str, Any] = {STEPS: [_written(step) for step in chain.steps]}
    if chain.returns:
        section["returns"] = [*chain.returns]
    section |= {"timeout_s": chain.timeout_s, "kserve_errors": chain.kserve_errors}
    return (f"{key} = {in_toml(value)}" for key, value in section.items())


def _written(step: StepConfig) -> str | dict[str, Any]:
    fields: dict[str, Any] = {"model": step.model}
    if step.version:
        fields["version"] = step.version
    if step.inputs:
        fields["inputs"] = dict(step.inputs)
    if step.outputs:
        fields["outputs"] = dict(step.outputs)
    return step.model if len(fields) == 1 else fields


def _misplaced(key: str) -> str:
    if key in settings(ModelConfig):
        return "is not for a chain, which has steps: each step's model has its own"
    return unknown_keys.words(key, _KEYS, listed="")


def _problems(
    given: Any, chain: str, versions: Mapping[str, Collection[str] | None]
) -> Iterator[str]:
    """Yield the problems of one step."""
    if not isinstance(given, dict):
        yield f"found {quoted(given)}, but it must be a model's name or a table"
        return
    for key in given:
        if key not in _STEP_KEYS:
            yield f"{key}: {unknown_keys.words(key, _STEP_KEYS, listed='')}"
    for key in ("inputs", "outputs"):
        names = given.get(key, {})
        if not isinstance(names, dict) or not _are_names([*names.values()]):
            yield f"{key}: found {quoted(names)}, but it must be {_NAMES_WORDS}"
    model, version = given.get("model"), given.get("version")
    own = versions.get(model) if isinstance(model, str) else None
    if not isinstance(model, str):
        yield "model is missing; it must be the name of a model"
    elif model == chain:
        yield "is the chain itself, so that it would never end"
    elif model not in versions:
        known = ", ".join(name for name, found in versions.items() if found is not None) or "none"
        yield f"there is no model {quoted(model)}; there is: {known}"
    elif own is None:
        yield f"{quoted(model)} is a chain itself; put its steps here in its place"
    elif version is not None and version not in own:
        there = ", ".join(map(quoted, own))
        yield f"{quoted(model)} has no version {quoted(version)}; there is: {there}"


def _step(given: Mapping[str, Any]) -> StepConfig:
    return StepConfig(
        model=given["model"],
        version=given.get("version", ""),
        inputs=tuple(given.get("inputs", {}).items()),
        outputs=tuple(given.get("outputs", {}).items()),
    )


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)
