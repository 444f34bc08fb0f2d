"""JSON text cut where its values begin and end, so that they can be passed on as they were written.

A decoded number is no longer the text it was: 6.0 and 6, a large integer, the order of keys. Here a
text is decoded to see that it is sound, and what is kept is where the parts of it stand. As
everywhere in Python, the last of several members of one name counts.
"""

import json
import re
from collections.abc import Callable, Iterable
from json import JSONDecodeError
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

MAX_MEMBERS: Final = 1024
"""Most members of the top-level object. The search for members takes 4 µs each."""
MAX_NESTING: Final = 512
"""Lists and objects within one another. Python's own limit depends on its version and on how deep
the caller stands already; this one lies below it in every process that a text passes through."""

_CONTAINERS: Final = (list, dict)
_NO_DEEPER: Final = (b"],[", b"], [", b"},{", b"}, {")
_BLANK: Final = re.compile(r"[ \t\n\r]*")
_BLANK_BYTES: Final = b" \t\n\r"
_SHOWN: Final = 20
_NOT_NUMBERS: Final = re.compile(r"-?(?:NaN|Infinity)")
_BEGINS: Final = re.compile(r'[\[{"\d]|-\d|true|false|null|-?(?:NaN|Infinity)')
"""Begin of a text that is meant to be JSON. What begins otherwise is a form, or a file's name."""
_WINDOW_BYTES: Final = 1 << 16
"""Bytes of a text to convert to numpy arrays at a time: these take ten times as much memory."""
_MARK: Final = b"\xef\xbb\xbf"
_WIDE_MARKS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""Byte order marks; those that begin like a shorter one come first."""
_QUOTE: Final = ord('"')
_COMMA: Final = ord(",")
_STEPS: Final[NDArray[np.int32]] = np.zeros(256, np.int32)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


class UnsoundText(ValueError):
    """The text is no JSON, or holds what cannot be passed on; says what, and where if known."""


class Value(NamedTuple):
    """A decoded value and where it stands: ``text[start:end]``, no blanks around it."""

    decoded: Any
    start: int
    end: int


def decoder_with(read_float: Callable[[str], float]) -> json.JSONDecoder:
    """Return a decoder of values.

    Args:
        read_float: makes a number of a text with a fraction or an exponent. Python's own takes
            1e400 for infinity; one that raises `json.JSONDecodeError` refuses it.
    """
    return json.JSONDecoder(parse_float=read_float, parse_constant=_refuse_constant)


def members(text: str, decoder: json.JSONDecoder | None = None) -> dict[str, Value]:
    """Return the members of the object that is the whole text.

    Args:
        text: the JSON text.
        decoder: of its values; without one, numbers too large to be decoded pass as they are.

    Raises:
        UnsoundText: the text is not one JSON object, or the object has more than `MAX_MEMBERS`
            members. Or it holds NaN, Infinity, an integer of more digits than Python converts, too
            deep nesting, or a value that the decoder refuses.
    """
    values = decoder or _DECODER
    at = _skip_blank(text, 0)
    if at == len(text):
        raise UnsoundText("it is empty")
    if text[at] != "{":
        end = _value(text, values, at).end
        _expect_end(text, end)
        raise UnsoundText(f"it is {kind(text[at])}, not an object")
    found: dict[str, Value] = {}
    count = 0
    at = _skip_blank(text, at + 1)
    while text[at : at + 1] != "}":
        if found:
            at = _skip_blank(text, _after(",", "a comma or a closing brace", text, at))
        if text[at : at + 1] != '"':
            raise _expected("a member's name in double quotes", text, at)
        if count == MAX_MEMBERS:
            raise UnsoundText(f"it has more than {MAX_MEMBERS} members, which is the most")
        count += 1
        name = _value(text, values, at)
        at = _after(":", "a colon", text, _skip_blank(text, name.end))
        member = found[name.decoded] = _value(text, values, _skip_blank(text, at))
        at = _skip_blank(text, member.end)
    _expect_end(text, at + 1)
    return found


def whole_list(text: str) -> list[Any]:
    """Return the list that is the whole text, decoded.

    Raises:
        UnsoundText: as `members`, for a list.
    """
    at = _skip_blank(text, 0)
    if text[at : at + 1] != "[":
        raise _expected("a list", text, at)
    value = _value(text, _DECODER, at)
    _expect_end(text, value.end)
    decoded: list[Any] = value.decoded
    return decoded


def can_be_sliced(body: bytes | bytearray, name: bytes, start: int) -> bool:
    r"""Return whether a list or object in a body may be passed on as its bytes lie there.

    If the body is sound JSON, the value is the member of a name that no other member has, in any
    spelling. Its nesting is at most `MAX_NESTING` levels. It is a quick look: True is certain.

    Args:
        body: begins with an object and the name, before any other string.
        name: in its quotes; of characters that only ``\u`` spells in another way.
        start: of the value.
    """
    if body.find(b'"', start) >= 0 and (body.count(name) > 1 or (b"\\" in body and b"\\u" in body)):
        return False
    return len(body) <= 2 * MAX_NESTING or _most_nesting(body) <= MAX_NESTING


def _most_nesting(body: bytes | bytearray) -> int:
    """Return an upper bound for the nesting of sound JSON text, in levels."""
    opened = body.count(b"[") + body.count(b"{")
    # Where one closes right before the next opens, that goes no deeper.
    return opened if opened <= MAX_NESTING else opened - sum(map(body.count, _NO_DEEPER))


def elements(text: str, start: int) -> list[tuple[int, int]]:
    """Start and end of each element of the sound list that opens at ``text[start]``."""
    found = []
    at = _skip_blank(text, start + 1)
    while text[at] != "]":
        end = _value(text, _DECODER, at).end
        found.append((at, end))
        at = _skip_blank(text, end)
        if text[at] == ",":
            at = _skip_blank(text, at + 1)
    return found


def in_runs(text: bytes, count: int) -> list[bytes]:
    """Split a sound list into lists of `count` elements each; the last has the rest.

    Args:
        text: the list and nothing else. One pass reads any contents.
        count: at least 1.
    """
    commas = _commas(text)[count - 1 :: count].tolist()
    starts = [1, *(comma + 1 for comma in commas)]
    return [
        b"[%b]" % text[start:end].strip(_BLANK_BYTES)
        for start, end in zip(starts, [*commas, len(text) - 1], strict=True)
    ]


def _commas(text: bytes) -> NDArray[np.int64]:
    """Return the positions of the commas between the elements of a sound list."""
    if b"\\" in text:
        # This removes quotes inside strings, and keeps every byte in its place.
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    found = []
    quotes = depth = 0
    for start in range(0, len(text), _WINDOW_BYTES):
        window = np.frombuffer(text, np.uint8, min(_WINDOW_BYTES, len(text) - start), start)
        quoted = (np.cumsum(window == _QUOTE) + quotes) & 1
        steps = _STEPS[window]
        steps[quoted == 1] = 0
        depths = np.cumsum(steps) + depth
        quotes, depth = int(quoted[-1]), int(depths[-1])
        commas = (window == _COMMA) & (depths == 1) & (quoted == 0)
        found.append(np.flatnonzero(commas) + start)
    return np.concatenate(found)


def kind(opening: str) -> str:
    """Return the kind of a JSON value, in words, from its first character."""
    words = {"{": "an object", "[": "a list", '"': "a string", "t": "true", "f": "false"}
    return words.get(opening, "null" if opening == "n" else "a number")


def why_unreadable(body: bytes | bytearray, error: ValueError) -> str:
    """Return the fault of a request's body.

    Args:
        body: all of it.
        error: orjson's, or that of decoding the body, or of `members`.
    """
    if encoding := _other_encoding(body):
        return encoding
    try:
        text = body.decode()
    except UnicodeDecodeError as undecodable:
        return _not_utf8(undecodable)
    begin = text.lstrip()
    if not begin:
        return "it is empty"
    if isinstance(error, JSONDecodeError):
        # orjson points behind a sign, if there is one.
        for start in (error.pos - 1, error.pos):
            if start >= 0 and (found := _NOT_NUMBERS.match(error.doc, start)):
                return f"{found[0]} is no JSON number: char {start}"
    shown = "" if _BEGINS.match(begin) else f"; it begins with {json.dumps(begin[:_SHOWN])}"
    return f"{error}{shown}"


def why_unsound(body: bytes | bytearray, error: UnicodeDecodeError | UnsoundText) -> str:
    """Return the fault of a body that cannot be decoded, or whose text `members` refused."""
    if encoding := _other_encoding(body):
        return encoding
    return _not_utf8(error) if isinstance(error, UnicodeDecodeError) else str(error)


def why_unwritable(error: Exception) -> str:
    """Return the fault of a value that `json.dumps` has refused."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    text = str(error)
    return "it holds NaN or Infinity" if text.startswith("Out of range float") else text


def _other_encoding(body: bytes | bytearray) -> str:
    """Return what is wrong with a body that is text, but not plain UTF-8; empty if it may be.

    JSON begins with two ASCII characters, unless it is a single digit. So a zero byte among the
    first two is of a wider encoding.
    """
    if body.startswith(_MARK):
        return "it begins with a byte order mark (BOM, EF BB BF), which JSON must not have"
    for mark, name in _WIDE_MARKS.items():
        if body.startswith(mark):
            return f"it is {name}, by its byte order mark, but JSON is UTF-8"
    return "it is UTF-16 or UTF-32, but JSON is UTF-8" if 0 in body[:2] else ""


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"byte {error.start} is not UTF-8"


def _value(text: str, decoder: json.JSONDecoder, at: int) -> Value:
    try:
        decoded, end = decoder.raw_decode(text, at)
    except JSONDecodeError as error:
        if error.doc is text:
            raise UnsoundText(str(error)) from None
        raise UnsoundText(f"it holds {error.doc[:_SHOWN]}, which is too large a number") from None
    except RecursionError:
        raise _too_deep() from None
    except UnsoundText:
        raise
    except ValueError:  # what int() raises beyond sys.get_int_max_str_digits()
        raise UnsoundText("it holds an integer of too many digits") from None
    brackets = text.count("[", at, end) + text.count("{", at, end)
    if brackets > MAX_NESTING and _is_deeper(decoded, MAX_NESTING):
        raise _too_deep()
    return Value(decoded, at, end)


def _is_deeper(value: Any, limit: int) -> bool:
    """Return whether containers are nested more than `limit` levels deep."""
    level = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in _in(outer) if type(inner) in _CONTAINERS]
        if not level:
            return False
    return True


def _in(container: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _refuse_constant(name: str) -> NoReturn:
    raise UnsoundText(f"it holds {name}, which is no JSON number")


_DECODER: Final = decoder_with(float)


def _skip_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def _after(character: str, expected: str, text: str, at: int) -> int:
    if text[at : at + 1] != character:
        raise _expected(expected, text, at)
    return at + 1


def _expect_end(text: str, at: int) -> None:
    at = _skip_blank(text, at)
    if at != len(text):
        raise UnsoundText(str(JSONDecodeError("unexpected content after the value", text, at)))


def _expected(expected: str, text: str, at: int) -> UnsoundText:
    return UnsoundText(str(JSONDecodeError(f"expected {expected}", text, at)))


def _too_deep() -> UnsoundText:
    return UnsoundText(f"it is nested more than {MAX_NESTING} levels deep")
