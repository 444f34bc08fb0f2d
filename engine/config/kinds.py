"""The kinds of values that settings have: what is legal, in words and as a function."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from ringbatch.engine.config.addresses import (
    are_addresses,
    are_attributes,
    are_forwarded,
    are_origins,
    are_proxies,
    are_ray_resources,
    is_address,
    is_any_address,
    is_host,
    is_listening_address,
    is_ray_address,
    is_socket_path,
    lowered,
    origin,
    stored,
)
from ringbatch.engine.config.declared_tensors import is_declaration
from ringbatch.shm import engine_name


@dataclass(frozen=True, slots=True)
class Kind:
    """The legal values of one setting.

    Attributes:
        words: completes the sentence "it must be ...".
        accepts: whether a value, as TOML gives it, is legal.
        store: what the configuration holds for a legal value.
        metavar: stands for the value in the command line's help; empty for a switch.
        numeric: whether a flag's text is read as a number.
        several: whether it is a list, and its flag is given once for each item.
        spelled: reads a flag's text that is neither a number nor the value itself.
    """

    words: str
    accepts: Callable[[Any], bool]
    store: Callable[[Any], Any]
    metavar: str
    numeric: bool = False
    several: bool = False
    spelled: Callable[[str], Any] | None = None


def _is_whole(value: object) -> bool:
    # To Python, true is the number 1; in a configuration, `workers = true` is a slip.
    return isinstance(value, int) and not isinstance(value, bool)


def whole(least: int, most: int) -> Kind:
    """Return the kind of whole numbers within bounds, both included."""

    def accepts(value: Any) -> bool:
        return _is_whole(value) and least <= value <= most

    return Kind(f"a whole number from {least} to {most}", accepts, int, "N", numeric=True)


def count_or_range(most: int) -> Kind:
    """Return the kind of a whole number from 1 on, or two, whose order is checked elsewhere."""

    def accepts(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return len(value) == 2 and all(_is_whole(item) and 0 <= item <= most for item in value)
        return _is_whole(value) and 1 <= value <= most

    def store(value: Any) -> int | tuple[int, int]:
        fewest, most_of_them = value if isinstance(value, list | tuple) else (value, value)
        return fewest if fewest == most_of_them > 0 else (fewest, most_of_them)

    words = f"a whole number from 1 to {most}, or the fewest and the most, such as [1, 8] or [0, 8]"
    return Kind(words, accepts, store, "N|MIN-MAX", spelled=_spelled_range)


def _spelled_range(text: str) -> object:
    """Return the value that a flag's text such as ``4`` or ``1-8`` spells; other text as it is."""
    numbers = text.split("-")
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        return text
    found = [int(number) for number in numbers]
    return found if len(found) == 2 else found[0]


def power_of_two(most: int) -> Kind:
    """Return the kind of powers of two from 1 up to a bound."""

    def accepts(value: Any) -> bool:
        return _is_whole(value) and 1 <= value <= most and value.bit_count() == 1

    words = f"a power of two up to {most}, such as 512, 1024 or 2048"
    return Kind(words, accepts, int, "N", numeric=True)


def number(most: int, *, zero: bool) -> Kind:
    """Return the kind of numbers from 0, or above it, up to a bound."""

    def accepts(value: Any) -> bool:
        if not _is_whole(value) and not isinstance(value, float):
            return False
        return (value >= 0 if zero else value > 0) and bool(value <= most)

    words = f"a number from 0 to {most}" if zero else f"a number above 0, at most {most}"
    return Kind(words, accepts, float, "X", numeric=True)


def choice(*names: str) -> Kind:
    """Return the kind of a setting whose value is one of these words."""
    words = " or ".join(f'"{name}"' for name in names)
    metavar = "{" + ",".join(names) + "}"
    return Kind(words, lambda value: value in names, str, metavar)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_model_file(value: Any) -> bool:
    return _is_text(value) and "://" not in value and "\0" not in value


def _is_model(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return are_addresses(value)
    return is_any_address(value) if _is_text(value) and "://" in value else _is_model_file(value)


def _is_payload_place(value: Any) -> bool:
    return is_any_address(value) if _is_text(value) and "://" in value else _is_model_file(value)


def _are_object_prefixes(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and _OBJECT_PREFIX.fullmatch(item) is not None for item in value
    )


def _is_device(value: object) -> bool:
    return isinstance(value, str) and _DEVICE_NAME.fullmatch(value) is not None


def _are_type_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and all(part.isidentifier() for part in item.split("."))
        for item in value
    )


def _are_tensors(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(is_declaration, value))


_OBJECT_PREFIX: Final = re.compile(r"/?[A-Za-z0-9._-]{1,200}")
OBJECT_PREFIXES: Final = Kind(
    'a list such as ["/myapp_"], of beginnings of 1 to 200 letters, digits, dots, dashes and '
    "underscores each",
    _are_object_prefixes,
    tuple,
    "NAME",
    several=True,
)
CORS_ORIGINS: Final = Kind(
    'a list such as ["https://app.example.com"], of origins as browsers write them, or ["*"] for '
    "all; an origin has a scheme, a host in lower case, and a port if it is not the usual one",
    are_origins,
    tuple,
    "ORIGIN",
    several=True,
)
PROXIES: Final = Kind(
    'a list such as ["10.0.0.7", "192.168.0.0/16", "fd00::/8"], of addresses, networks or "unix"',
    are_proxies,
    tuple,
    "ADDRESS",
    several=True,
)
_DEVICE_NAME: Final = re.compile(r"cpu|cuda:[0-9]{1,3}")
DEVICE: Final = Kind('"cpu", or "cuda:0" with the number of a device', _is_device, str, "DEVICE")
TYPE_NAMES: Final = Kind(
    'a list such as ["sklearn.tree._tree.Tree"], of full names of types',
    _are_type_names,
    tuple,
    "TYPE",
    several=True,
)
TREE_ANSWERS: Final = ("y", "label", "probabilities", "margins", "contributions")
"""Results that a model of trees can return, by the names of its outputs."""


def _are_answers(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(set(map(str, value))) == len(value)
        and all(name in TREE_ANSWERS for name in value)
    )


def _are_class_names(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and all(map(_is_text, value))
        and len(set(value)) == len(value)
    )


ANSWERS: Final = Kind(
    f'a list such as ["label", "margins"], of {", ".join(TREE_ANSWERS)}',
    _are_answers,
    tuple,
    "OUTPUT",
    several=True,
)
CLASS_NAMES: Final = Kind(
    'a list such as ["no", "yes"], of texts that differ',
    _are_class_names,
    tuple,
    "TEXT",
    several=True,
)
TENSORS: Final = Kind(
    'a list such as ["x FP32 [3, 224, 224]"], of a name, a datatype and the sizes of one instance '
    "each; -1 is any size",
    _are_tensors,
    tuple,
    "TENSOR",
    several=True,
)
ADDRESS: Final = Kind(
    "an address or a host name, without a port or brackets", is_host, str, "ADDRESS"
)
LISTENING_ADDRESS: Final = Kind(
    'an address or a host name, without a port or brackets, or "unix:/PATH" with the absolute '
    "path of a Unix socket, of at most 107 bytes",
    is_listening_address,
    str,
    "ADDRESS",
)
SOCKET_PATH: Final = Kind(
    "the absolute path of a Unix socket, of at most 107 bytes", is_socket_path, str, "PATH"
)
SOCKET_MODE: Final = Kind(
    'the permissions of a file in octal digits, such as "0660"',
    lambda value: isinstance(value, str) and re.fullmatch("0?[0-7]{3}", value) is not None,
    str,
    "MODE",
)
SWITCH: Final = Kind("true or false", lambda value: isinstance(value, bool), bool, "")
FILE: Final = Kind("the path of a file", _is_model_file, Path, "FILE")
MODEL: Final = Kind(
    "the path of a model file, or the address of a model server, http://HOST:PORT or "
    "https://HOST:PORT, or a list of addresses",
    _is_model,
    stored,
    "FILE",
)
SERVER_ADDRESS: Final = Kind(
    "the address of a server, http://HOST:PORT",
    lambda value: is_address(value) and origin(value) == value,
    str,
    "URL",
)
_APPLICATION: Final = re.compile(
    r"(?:[^\0]*/)?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII
)
APPLICATION: Final = Kind(
    'the name of a module and of an application in it, such as "api:app"',
    lambda value: isinstance(value, str) and _APPLICATION.fullmatch(value) is not None,
    str,
    "MODULE:NAME",
)
TRACE_ADDRESS: Final = Kind(
    "the address of an OpenTelemetry collector, http://HOST:PORT or https://HOST:PORT",
    is_any_address,
    str,
    "URL",
)
PAYLOAD_PLACE: Final = Kind(
    "the path of a file, or the address of a server, http://HOST:PORT or https://HOST:PORT, with "
    "or without a path",
    _is_payload_place,
    str,
    "URL|FILE",
)
ATTRIBUTES: Final = Kind(
    'a list such as ["namespace=prod"], of names of 1 to 20 lower-case letters and digits that no '
    "event has of its own, and a value each",
    are_attributes,
    tuple,
    "NAME=VALUE",
    several=True,
)
HEADER_NAMES: Final = Kind(
    'a list such as ["authorization"], of names of headers that do not say how a request is sent',
    are_forwarded,
    lowered,
    "NAME",
    several=True,
)


def ascending(most: int, example: str) -> Kind:
    """Return the kind of lists of whole numbers from 1 up to a bound, each above the one before."""

    def accepts(value: Any) -> bool:
        return (
            isinstance(value, list | tuple)
            and all(_is_whole(item) and 1 <= item <= most for item in value)
            and all(low < high for low, high in pairwise(value))
        )

    words = f"a list such as {example}, of ascending whole numbers from 1 to {most}"
    return Kind(words, accepts, tuple, "N", numeric=True, several=True)


def _are_paddings(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and _PADDING.fullmatch(item) is not None for item in value
    )


def _are_devices(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_device, value))


def _is_cpus(value: object) -> bool:
    return isinstance(value, str) and _CPUS.fullmatch(value) is not None


def _are_cpus(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_cpus, value))


_PADDING: Final = re.compile(r"[^=\s]+=-?[0-9]{1,18}(?:\.[0-9]{1,18})?")
PADDINGS: Final = Kind(
    'a list such as ["ids=1"], of an input and the number it is padded with each',
    _are_paddings,
    tuple,
    "INPUT=X",
    several=True,
)
DEVICES: Final = Kind(
    'a list such as ["cuda:0", "cuda:1"], of "cpu" or "cuda:" with the number of a device',
    _are_devices,
    tuple,
    "DEVICE",
    several=True,
)
_RANGE: Final = "[0-9]{1,5}(?:-[0-9]{1,5})?"
_CPUS: Final = re.compile(rf"numa:[0-9]{{1,4}}|{_RANGE}(?:,{_RANGE})*")
CPUS: Final = Kind('CPUs such as "0-3,8", or those of a NUMA node, "numa:0"', _is_cpus, str, "CPUS")
CPU_SETS: Final = Kind(
    'a list such as ["0-3", "4-7"] or ["numa:0"], of CPUs or a NUMA node each',
    _are_cpus,
    tuple,
    "CPUS",
    several=True,
)
NAME: Final = Kind("a name", _is_text, str, "NAME")
RAY_ADDRESS: Final = Kind('"auto", or HOST:PORT of a Ray cluster', is_ray_address, str, "ADDRESS")
RAY_RESOURCES: Final = Kind(
    'a list such as ["accelerator=1"], of names other than CPU and GPU, and a count above 0 each',
    are_ray_resources,
    tuple,
    "NAME=X",
    several=True,
)
ENGINE_NAME: Final = Kind(engine_name.WORDS, engine_name.is_engine_name, str, "NAME")
VERSION_WORDS: Final = "1 to 64 letters, digits, dots, dashes or underscores, and not . or .."
_VERSION_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_version(value: object) -> bool:
    """Return whether a value may name a version, in a URL and in a file alike."""
    named = isinstance(value, str) and _VERSION_NAME.fullmatch(value) is not None
    return named and value not in {".", ".."}


VERSION: Final = Kind(f"the name of a version, {VERSION_WORDS}", is_version, str, "VERSION")
RuntimeName = Literal[
    "python",
    "onnx",
    "sklearn",
    "xgboost",
    "lightgbm",
    "catboost",
    "openvino",
    "text",
    "generator",
    "torch",
    "http",
    "ray",
]
RUNTIMES: Final = {
    "python": (".py",),
    "onnx": (".onnx",),
    "sklearn": (".skops", ".pkl", ".joblib"),
    "xgboost": (".ubj", ".json"),
    "lightgbm": (".txt",),
    "catboost": (".cbm",),
    "openvino": (".xml",),
    "text": (),
    "generator": (),
    "torch": (".pt2", ".pt", ".pth", ".ts"),
    "http": (),
    "ray": (),
}
"""The endings by which each runtime knows its files. http knows addresses instead, text and
generator directories, and ray has files of the others run elsewhere."""
OF_DIRECTORIES: Final = frozenset({"text", "generator"})
"""Runtimes whose models are directories."""

OF_TABLES: Final = frozenset({"sklearn", "xgboost", "lightgbm", "catboost"})
"""Runtimes whose models know of missing values."""


def runtime_of(path: Path | str) -> str | None:
    """Return the runtime that knows a file by its ending, or an address."""
    if isinstance(path, str):
        return "http"
    return next((name for name, endings in RUNTIMES.items() if path.suffix in endings), None)
