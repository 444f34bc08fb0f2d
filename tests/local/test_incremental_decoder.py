"""Tokens to text, piece by piece, with the decoders of the package tokenizers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_generators import END, tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ringbatch.frontend.generation.incremental_decoder import IncrementalDecoder

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
WORDS = ("▁a", "▁", "a", "b", "▁bb", "ab", "▁.")
BYTES = tuple(f"<0x{number:02X}>" for number in range(256))
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


def metaspace() -> Tokenizer:
    """Return a tokenizer as Llama 2's: words with their space in front, and bytes of other text."""
    vocabulary = {token: n for n, token in enumerate((*WORDS, *BYTES))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made


BYTE_LEVEL: Any = tokenizer()
METASPACE: Any = metaspace()
SPECIAL: int = BYTE_LEVEL.token_to_id(END)


def pieces_of(
    decode: Callable[[Sequence[int]], str], ids: Sequence[int], skipped: Sequence[int] = ()
) -> list[str]:
    decoder = IncrementalDecoder(decode, skipped)
    return [*map(decoder.add, ids), decoder.rest()]


@given(TEXTS)
def test_pieces_of_bytes_are_whole_characters_and_the_whole_text(text: str) -> None:
    ids = BYTE_LEVEL.encode(text).ids
    pieces = pieces_of(BYTE_LEVEL.decode, ids)
    assert "".join(pieces) == text == BYTE_LEVEL.decode(ids)
    assert text.count(UNKNOWN) == "".join(pieces).count(UNKNOWN)


@given(st.lists(st.sampled_from(range(len(WORDS)))))
def test_pieces_of_words_have_the_spaces_of_the_whole_text(ids: list[int]) -> None:
    assert "".join(pieces_of(METASPACE.decode, ids)) == METASPACE.decode(ids)


@given(TEXTS)
def test_pieces_of_fallen_back_bytes_are_the_whole_text(text: str) -> None:
    ids = [METASPACE.token_to_id(f"<0x{byte:02X}>") for byte in text.encode()]
    assert "".join(pieces_of(METASPACE.decode, ids)) == METASPACE.decode(ids)


def test_a_character_is_sent_with_its_last_byte() -> None:
    ids = BYTE_LEVEL.encode("a€b").ids
    assert pieces_of(BYTE_LEVEL.decode, ids) == ["a", "", "", "€", "b", ""]
    assert pieces_of(BYTE_LEVEL.decode, ids[:3]) == ["a", "", "", UNKNOWN]


def test_tokens_without_a_text_come_between_no_others() -> None:
    first, second, third = BYTE_LEVEL.encode("€").ids
    decode = partial(BYTE_LEVEL.decode, skip_special_tokens=True)
    ids = [first, SPECIAL, second, third, SPECIAL]
    assert pieces_of(decode, ids, [SPECIAL]) == ["", "", "", "€", "", ""]


@pytest.mark.parametrize("made", [BYTE_LEVEL, METASPACE])
def test_bytes_of_no_character_are_not_held_back_for_ever(made: Any) -> None:
    (lead,) = (
        BYTE_LEVEL.encode("€").ids[:1] if made is BYTE_LEVEL else (made.token_to_id("<0xE2>"),)
    )
    pieces = pieces_of(made.decode, [lead] * 100)
    assert sum(map(bool, pieces[:50])) >= 2
    assert set("".join(pieces)) == {UNKNOWN}
