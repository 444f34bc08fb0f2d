"""The settings' reference, from their definitions and groups."""

import re
import types
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from generator.setting_groups import GROUPS, Entry, Group
from ringbatch.engine.command.setting_spelling import flag_of
from ringbatch.engine.config.credentials import DIRECTORY_VARIABLE, NAMES
from ringbatch.engine.config.definitions import Setting, settings
from ringbatch.engine.config.document import ALIASES
from ringbatch.engine.config.runtime_rules import RUNTIMES_OF_KEY
from ringbatch.engine.config.settings import ModelConfig, ServerConfig
from ringbatch.engine.process.placement import THREAD_VARIABLES

SERVER: Final = settings(ServerConfig)
MODEL: Final = settings(ModelConfig)
_HINTS: Final = get_type_hints(ServerConfig) | get_type_hints(ModelConfig)
_TYPES: Final[dict[object, str]] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    Path: "string",
}
_KEY: Final = re.compile(rf"\b({'|'.join(key for key in (*SERVER, *MODEL) if '_' in key)})\b")
_OPENTELEMETRY: Final = (
    "`OTEL_EXPORTER_OTLP_HEADERS` adds headers, `OTEL_RESOURCE_ATTRIBUTES` attributes"
)


def index() -> str:
    """Return a table of all settings, with links, by group."""
    lines = ["| setting | section | default | |", "|---|---|---|---|"]
    for group in GROUPS:
        lines.append(f"| **{group.title}** | | | |")
        for entry in group.entries:
            setting = _setting(entry.key)
            first = sentences(setting)[0]
            cells = (_link(entry.key), f"`{_section(entry.key)}`", _default(setting), first)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def details() -> str:
    """Return a section for each group, and below it one for each setting."""
    return "\n\n".join(line for group in GROUPS for line in _group(group))


def sentences(setting: Setting) -> list[str]:
    """Return the meaning of a setting as whole sentences."""
    text = _KEY.sub(r"`\g<0>`", f"{setting.sentence[0].upper()}{setting.sentence[1:]}.")
    return [part if part.endswith(".") else f"{part}." for part in text.split(". ")]


def example(entry: Entry) -> str:
    """Return a TOML document in which the setting has its example."""
    model = entry.key in MODEL
    lines = ["[models.mnist]" if model else "[server]"]
    lines += [f"path = {entry.path}"] * bool(model and entry.path)
    lines += [f"{entry.key} = {entry.example}", entry.beside]
    return "\n".join(lines).rstrip()


def _group(group: Group) -> Iterator[str]:
    yield f"## {group.title}"
    for entry in group.entries:
        yield from _entry(entry)


def _entry(entry: Entry) -> Iterator[str]:
    key, setting = entry.key, _setting(entry.key)
    yield f"### `{key}`"
    yield " ".join(sentences(setting))
    facts = [
        ("Type", _type(_HINTS[key])),
        ("Legal values", setting.kind.words),
        ("Default", _default(setting) or "not set"),
        ("Command line", _flag(setting)),
        ("Environment", _environment(key)),
        ("KServe's spelling", ", ".join(f"`{a}`" for a, of in ALIASES.items() if of == key)),
        ("Runtimes", ", ".join(RUNTIMES_OF_KEY.get(key, ()))),
        ("See also", ", ".join(map(_link, entry.see))),
    ]
    yield "\n".join(f"- {name}: {value}" for name, value in facts if value)
    mark = "<!-- shown: the directory must exist -->\n" * ('runtime = "text"' in entry.beside)
    yield f"{mark}```toml\n{example(entry)}\n```"


def _setting(key: str) -> Setting:
    return SERVER[key] if key in SERVER else MODEL[key]


def _section(key: str) -> str:
    return "[server]" if key in SERVER else "[models.NAME]"


def _link(key: str) -> str:
    return f"[`{key}`](#{key})"


def _flag(setting: Setting) -> str:
    if setting.key == "path":
        return "`MODEL`, an argument without a flag"
    flag = flag_of(setting.key)
    if not setting.kind.metavar:
        return f"`{flag}`, `{flag.replace('--', '--no-', 1)}`"
    often = ", once for each item" if setting.kind.several else ""
    return f"`{flag} {setting.kind.metavar}`{often}"


def _environment(key: str) -> str:
    name = key.removesuffix("_file")
    if name in NAMES:
        return f"without the setting, the file `{name}` in `${DIRECTORY_VARIABLE}` (systemd)"
    if key == "threads":
        return "without the setting, " + ", ".join(f"`{name}`" for name in THREAD_VARIABLES)
    return _OPENTELEMETRY if key == "trace_endpoint" else ""


def _default(setting: Setting) -> str:
    default = setting.default
    if default is MISSING:
        return "required"
    if default is None or default == ():
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return "`[" + ", ".join(f'"{item}"' for item in default) + "]`"
    if isinstance(default, str):
        return f'`"{default}"`'
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _type(hint: Any) -> str:
    """Return the words for a field's type, as TOML has it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "string"
    if origin is tuple:
        of = "integers" if arguments[0] is int else "strings"
        return f"list of {of}" if arguments[-1] is Ellipsis else f"list of {len(arguments)} {of}"
    if origin in (Union, types.UnionType):
        found = [_type(one) for one in arguments if one is not type(None)]
        return " or ".join(dict.fromkeys(found))
    return _TYPES[hint]
