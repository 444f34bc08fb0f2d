"""The definitions of settings, read from the annotations of their sections."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, get_type_hints

from ringbatch.engine.config.kinds import Kind
from ringbatch.engine.config.settings import ModelConfig, ServerConfig


@dataclass(frozen=True, slots=True)
class Setting:
    """Key of a section. `default` is `dataclasses.MISSING` for a key that must be given."""

    key: str
    kind: Kind
    sentence: str
    default: Any


def settings(section: type[ServerConfig] | type[ModelConfig]) -> dict[str, Setting]:
    """Return the keys of a section in their order, without a model's name and version."""
    return _SETTINGS[section]


def _read(section: type[ServerConfig] | type[ModelConfig]) -> dict[str, Setting]:
    hints = get_type_hints(section, include_extras=True)
    said = [(f, getattr(hints[f.name], "__metadata__", ())) for f in fields(section)]
    return {f.name: Setting(f.name, words[0], words[1], f.default) for f, words in said if words}


_SETTINGS: Final[Mapping[type, dict[str, Setting]]] = {
    section: _read(section) for section in (ServerConfig, ModelConfig)
}
