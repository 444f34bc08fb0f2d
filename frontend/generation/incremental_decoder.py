"""Tokens to text, piece by piece: never half a character, and spaces as in the whole text. Pure.

A token alone has no text of its own: several may be the bytes of one character, and many tokenizers
drop a space at the beginning of a text. So each token is decoded behind those of the piece before,
and the new text is what comes behind the text of these.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

_UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}"
"""The end of a text whose last bytes are no whole character yet."""
_MOST_HELD: Final = 16
"""Tokens without a piece, behind which bytes are taken for no character at all."""


class IncrementalDecoder:
    """Decoder of the tokens of one text.

    Args:
        decode: returns the text of tokens.
        skipped: tokens that have no text, such as the one that ends a text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], skipped: Collection[int]) -> None:
        self._decode = decode
        self._skipped = skipped
        self._tokens: list[int] = []
        """Tokens of the last piece, then the tokens that have no piece yet."""
        self._sent = 0
        """Number of tokens of the last piece."""
        self._before = ""
        """Text of the tokens of the last piece."""

    def add(self, token: int) -> str:
        """Return the next piece; empty while its last character is not whole."""
        if token in self._skipped:
            return ""
        self._tokens.append(token)
        text = self._decode(self._tokens)
        piece = text[len(self._before) :]
        held = len(self._tokens) - self._sent
        if held < _MOST_HELD and (not piece or text.endswith(_UNKNOWN)):
            return ""
        self._tokens = self._tokens[self._sent :]
        self._sent = held
        self._before = self._decode(self._tokens)
        return piece

    def rest(self) -> str:
        """Return the last piece, as no more tokens come."""
        if len(self._tokens) == self._sent:
            return ""
        text = self._decode(self._tokens)[len(self._before) :]
        self._sent = len(self._tokens)
        return text
