"""Command-line flags of ``serve`` and its siblings, made from the definitions of settings.

The values of flags override those of the configuration file.
"""

import argparse
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from typing import Any

from ringbatch.engine.command import engine_arguments
from ringbatch.engine.command.setting_spelling import ALL_FLAGS, attribute_of, flag_of, in_flags
from ringbatch.engine.config.addresses import lacks_scheme
from ringbatch.engine.config.definitions import Setting, settings
from ringbatch.engine.config.document import (
    ALIASES,
    BUNDLED_NAME,
    MODEL_FILES,
    SERVER_FILES,
    Config,
    ConfigError,
    ModelConfig,
    Place,
    ServerConfig,
    bundled_document,
    conclude,
    read,
)
from ringbatch.engine.config.model_names import NAME_WORDS, is_model_name
from ringbatch.engine.config.paths import absolute
from ringbatch.shm.engine_name import UNNAMED, engine_name_of


def configure(arguments: argparse.Namespace) -> Config:
    """Return the configuration that the arguments of ``serve`` ask for.

    Raises:
        ConfigError: with every problem of the file and of the flags.
    """
    if arguments.config is not None:
        document, source = read(arguments.config), str(arguments.config)
        base, name = arguments.config.parent, engine_name_of(arguments.config)
    else:
        document, source, base, name = {}, "command line", Path(), UNNAMED
        if not arguments.model:
            document = bundled_document(BUNDLED_NAME if arguments.name is None else arguments.name)
    origins: dict[Place, str] = {}
    if arguments.name is not None:
        origins["models", arguments.name] = "--name"
    server = given(ServerConfig, arguments)
    for key in SERVER_FILES & server.keys():
        flag, path = server[key]
        server[key] = (flag, _from_here(path, arguments.config))
    _lay_over(document, ("server",), server, origins)
    values = given(ModelConfig, arguments)
    for key in values.keys() & {*MODEL_FILES}:
        flag, path = values[key]
        values[key] = (flag, _from_here(path, arguments.config))
    if arguments.model:
        values["path"] = ("MODEL", _path_of(arguments))
    if values:
        place = ("models", _target(document, arguments, next(iter(values.values()))[0]))
        _lay_over(document, place, values, origins)
    elif arguments.config is not None and arguments.name is not None:
        raise ConfigError("--name: there is no MODEL and no flag for a model that it could be for")
    return conclude(document, source=source, base=base, name=name, origins=origins)


def given(
    section: type[ServerConfig] | type[ModelConfig], arguments: argparse.Namespace
) -> dict[str, tuple[str, Any]]:
    """Return the flags of a section that the user gave, as names and values by key."""
    values = {key: getattr(arguments, attribute_of(key), None) for key in settings(section)}
    return {key: (flag_of(key), value) for key, value in values.items() if value is not None}


def _from_here(model: str, config: Path | None) -> str:
    """Return MODEL as a section's path, relative to the working directory even with a file."""
    return model if config is None or "://" in model else str(absolute(Path(model)))


def _path_of(arguments: argparse.Namespace) -> str | list[str]:
    """Return the path that MODEL sets: a file, an address or several addresses."""
    found = [_from_here(model, arguments.config) for model in arguments.model]
    return found if len(found) > 1 else found[0]


def _target(document: dict[str, Any], arguments: argparse.Namespace, first: str) -> str:
    """Return the name of the model that the flags are for; errors name the flag `first`."""
    models = document.get("models", {})
    names = list(models) if isinstance(models, dict) else []
    if arguments.name is not None:
        if names and not arguments.model and arguments.name not in names:
            raise ConfigError(
                f'--name: found "{arguments.name}", but it must be the name of a model in '
                f"{arguments.config}: {', '.join(names)}"
            )
        return str(arguments.name)
    if len(names) > 1:
        raise ConfigError(
            f"{first}: {arguments.config} has several models; "
            f"say with --name which one is meant: {', '.join(names)}"
        )
    if names:
        return str(names[0])
    if not arguments.model:
        raise ConfigError(f"{first}: {arguments.config} has no model that it could be for")
    is_file = "://" not in arguments.model[0] and not lacks_scheme(arguments.model[0])
    path = Path(arguments.model[0])
    stem = (absolute(path) if is_file else path).stem
    if not is_model_name(stem) and is_file:
        raise ConfigError(
            f'MODEL: "{stem}" cannot be the name of a model; give one with --name; {NAME_WORDS}'
        )
    return stem if is_model_name(stem) else "model"


def _lay_over(
    document: dict[str, Any],
    place: Place,
    values: dict[str, tuple[str, Any]],
    origins: dict[Place, str],
) -> None:
    """Put values into the section at `place`, and record their origin.

    They replace both spellings of a key, also in the tables of a model's versions. If a table has
    another type, it stays as it is: `conclude` refuses it.

    Raises:
        ConfigError: a version has its own path, and the flags set another.
    """
    section: Any = document
    for name in place if values else ():
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            return
    versions = section.get("versions")
    tables = versions.items() if isinstance(versions, dict) else ()
    own = {name: table for name, table in tables if isinstance(table, dict)}
    for key, (origin, value) in values.items():
        aliases = [alias for alias, canonical in ALIASES.items() if canonical == key]
        for version, table in own.items():
            if key == "path" and key in table:
                raise ConfigError(
                    f"{origin}: version {version} of {place[-1]} has a path of its own; leave out "
                    f"{origin}, or that path"
                )
            for said in (key, *aliases):
                table.pop(said, None)
        for alias in aliases:
            section.pop(alias, None)
        section[key] = value
        origins[*place, key] = origin


def add_flag(group: Any, setting: Setting) -> None:
    """Add the flag of a setting to a group of arguments."""
    # Values stay unchecked here, so that `conclude` finds all problems at once.
    help_text = _help(setting)
    if not setting.kind.metavar:
        action = argparse.BooleanOptionalAction
        group.add_argument(flag_of(setting.key), action=action, default=None, help=help_text)
        return
    read_value = setting.kind.spelled or (engine_arguments.number if setting.kind.numeric else str)
    group.add_argument(
        flag_of(setting.key),
        type=read_value,
        action="append" if setting.kind.several else "store",
        metavar=setting.kind.metavar,
        help=help_text,
    )


@cache
def _help(setting: Setting) -> str:
    """Return the help of a setting's flag; most flags are those of several commands."""
    default = (
        "" if setting.default in (None, MISSING, ()) else f" (default: {_shown(setting.default)})"
    )
    return in_flags(setting.sentence, ALL_FLAGS, about=setting.key) + default


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return ", ".join(default)
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:g}" if isinstance(default, float) else str(default)
