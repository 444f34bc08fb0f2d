"""Setting names in messages, spelled as the user gave them: as keys of the file or as flags.

Messages name settings as a file has them, ``trust_pickle = true``. With flags, this module rewrites
that to ``--trust-pickle``: for all settings if there is no file, else for those that flags set.
"""

import argparse
import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from ringbatch.engine.command import sidecar
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.settings import ModelConfig, ServerConfig

_SETTINGS: Final = settings(ServerConfig) | settings(ModelConfig)
_LEAST: Final = "max_batch_size"
"""A sample setting: a command with a flag for it has flags for all settings."""
_STRING: Final = r'"[^"]*"'
_VALUE: Final = rf"true|false|-?[0-9][0-9.e-]*|{_STRING}|\[(?:{_STRING}|[^\]\"])*\]"
_NAMED: Final = re.compile(
    rf"(?<![\w./\"'=-])(?P<server>\[server\] )?(?P<key>{'|'.join(_SETTINGS)})"
    rf"(?: = (?P<value>{_VALUE}))?(?![\w/\"'=-]|\.\w)"
)
_LIST: Final = re.compile(rf"\[(?:{_STRING}|[0-9]+)(?:, (?:{_STRING}|[0-9]+))*\]")
_ABOUT: Final = re.compile(r"(--[a-z-]+): ")
_INDENT: Final = "    "


def flag_of(key: str) -> str:
    """Return the flag of a setting."""
    return "--" + attribute_of(key).replace("_", "-")


def attribute_of(key: str) -> str:
    """Return argparse's attribute for a setting's flag; ``--name`` names a model."""
    return "engine_name" if key == "name" else key


ALL_FLAGS: Final = {key: flag_of(key) for key in _SETTINGS}
"""Flags of all settings, by key."""


def words_for(arguments: argparse.Namespace) -> Callable[[str], str]:
    """Return a function that names settings in a message as these arguments did."""
    flags = _flags(arguments)
    return lambda text: in_flags(text, flags)


def in_flags(text: str, flags: Mapping[str, str], *, about: str = "") -> str:
    """Return a message with settings named by flags.

    Args:
        text: names settings as a file does. Indented lines, which are to be copied, stay as they
            are.
        flags: of settings, by key.
        about: the key of the message's subject; by default that of the flag that begins a line.
    """
    keys = {flag: key for key, flag in flags.items()}

    def named(found: re.Match[str]) -> str:
        key, value = found["key"], found["value"]
        is_named = found["server"] or value is not None or "_" in key
        if key not in flags or not is_named:
            return found[0]
        return flags[key] if value is None else _given(key, flags[key], json.loads(value))

    def worded(line: str) -> str:
        if line.startswith(_INDENT):
            return line
        line = _NAMED.sub(named, line)
        begins = _ABOUT.match(line)
        key = about or (keys.get(begins[1]) if begins else None)
        if key is None:
            return line
        kept = "" if _SETTINGS[key].kind.several else f"{flags[key]} "
        return _LIST.sub(
            lambda found: _given(key, flags[key], json.loads(found[0])).removeprefix(kept), line
        )

    return "\n".join(map(worded, text.splitlines()))


def printed(text: str) -> str:
    """Return the printed form of an error: lines to copy lose their indent and get no prefix."""
    return "\n".join(
        one.removeprefix(_INDENT) if not one or one.startswith(_INDENT) else f"ringbatch: {one}"
        for one in text.splitlines()
    )


def _flags(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the flags that settings came from, or could have come from, by key."""
    if hasattr(arguments, "agent_port"):
        agents = {flag.place[-1]: f"--{flag.name}" for flag in sidecar.FLAGS}
        return {key: flag_of(key) for key in sidecar.KEYS} | agents
    if not hasattr(arguments, _LEAST):
        return {}
    known = {key for key in _SETTINGS if hasattr(arguments, attribute_of(key))}
    if arguments.config is not None:
        known = {key for key in known if getattr(arguments, attribute_of(key)) is not None}
    return {key: flag_of(key) for key in known}


def _given(key: str, flag: str, value: Any) -> str:
    """Return a flag with its value, as a user types it."""
    if isinstance(value, bool):
        return flag if value else flag.replace("--", "--no-", 1)
    if isinstance(value, list) and not _SETTINGS[key].kind.several:
        value = "-".join(map(str, value))
    words = map(str, value if isinstance(value, list) else [value])
    # argparse takes a separate word that begins with a dash for a flag.
    return " ".join(f"{flag}{'=' if w.startswith('-') else ' '}{shlex.quote(w)}" for w in words)
