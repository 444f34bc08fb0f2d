"""Decoders in ONNX files, and their rows: the same texts whatever rows run beside them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from decoders import HEADS, LIMIT, SIZE, Weights, continued, graph, scores, weights
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from ringbatch.engine.models.model import InvalidInput
from ringbatch.engine.runtimes.graphs import decoded_rows
from ringbatch.engine.runtimes.graphs.decoded_rows import DecodedRows, Row, read_together
from ringbatch.engine.runtimes.graphs.decoder import Decoder, apart, together
from ringbatch.shm.errors import StartupError

PATH = Path("decoder.onnx")
VOCABULARY = 20
MODEL: Weights = weights(VOCABULARY, seed=1)


def session(model: onnx.ModelProto) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString())


def decoder(**more: Any) -> Decoder:
    return Decoder(PATH, session(graph(MODEL, **more)))


PLAIN = decoder()


@pytest.mark.parametrize("more", [{}, {"merged": True}, {"positions": False}], ids=str)
def test_scores_do_not_depend_on_the_pieces_of_a_text_or_on_its_neighbours(
    more: dict[str, bool],
) -> None:
    found = decoder(**more)
    assert found.vocabulary == VOCABULARY
    texts = [[1, 2, 3], [4, 5, 6]]
    none = np.zeros(2, np.int64)
    first, cache = found.next_scores(np.array(texts), none, None)
    for row, text in enumerate(texts):
        assert first[row] == pytest.approx(scores(MODEL, text), abs=1e-4)
    # A longer row beside one of them.
    longer = [7, 8, 9, 10, 11]
    _, other = found.next_scores(np.array([longer]), none[:1], None)
    both = together([apart(other, [5])[0], apart(cache, [3, 3])[1]])
    second, whole = found.next_scores(np.array([[1], [2]]), np.array([5, 3]), both)
    assert second[0] == pytest.approx(scores(MODEL, [*longer, 1]), abs=1e-4)
    assert second[1] == pytest.approx(scores(MODEL, [4, 5, 6, 2]), abs=1e-4)
    assert [layer.shape for layer in whole] == [(2, HEADS, 6, SIZE)] * 4


def without(kind: str, name: str) -> onnx.ModelProto:
    """The decoder without an input or output of that name."""
    model = graph(MODEL)
    nodes = getattr(model.graph, kind)
    (node,) = [node for node in nodes if node.name == name]
    nodes.remove(node)
    return model


def with_input(name: str, kind: int, shape: list[Any]) -> onnx.ModelProto:
    model = graph(MODEL)
    model.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    return model


class Named:
    """Stand-in for a session with the inputs and outputs of a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.get_inputs = lambda: [*map(node, model.graph.input)]
        self.get_outputs = lambda: [*map(node, model.graph.output)]
        self.run = None


def node(value: onnx.ValueInfoProto) -> Any:
    tensor = value.type.tensor_type
    kinds: dict[int, str] = {
        TensorProto.FLOAT: "float",
        TensorProto.INT64: "int64",
        TensorProto.BOOL: "bool",
    }
    sizes = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]

    class Node:
        name = value.name
        type = f"tensor({kinds[tensor.elem_type]})"
        shape = sizes

    return Node


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "no cache": (
        lambda: helper.make_model(
            helper.make_graph(
                [],
                "encoder",
                [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["a", "b"])],
                [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["a", "b", 4])],
            )
        ),
        "has no inputs past_key_values.*",
    ),
    "no mask": (lambda: without("input", "attention_mask"), "lacks attention_mask,"),
    "no present": (lambda: without("output", "present.1.value"), "lacks present.1.value,"),
    "no logits": (lambda: without("output", "logits"), "lacks logits,"),
    "unknown input": (
        lambda: with_input("encoder_states", TensorProto.FLOAT, ["a"]),
        "has the input 'encoder_states'",
    ),
    "flat cache": (
        lambda: with_input("past_key_values.2.key", TensorProto.FLOAT, ["a", "b", 4]),
        "lacks present.2.key,",
    ),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_other_graphs_are_refused(make: Callable[[], onnx.ModelProto], words: str) -> None:
    with pytest.raises(StartupError) as caught:
        Decoder(PATH, Named(make()))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (["a", "heads", "t", SIZE], "the second and the last a number"),
        (["a", HEADS, "t", "size"], "does not say the size of a head"),
        (["a", "t", SIZE], "it must be float or float16 [rows, heads, tokens, size]"),
    ],
)
def test_a_cache_of_another_form_is_refused(shape: list[Any], words: str) -> None:
    model = graph(MODEL)
    for value in model.graph.input:
        if value.name.startswith("past_key_values"):
            made = helper.make_tensor_value_info(value.name, TensorProto.FLOAT, shape)
            value.CopyFrom(made)
    with pytest.raises(StartupError) as caught:
        Decoder(PATH, Named(model))
    assert words in str(caught.value)


def begun(rows: DecodedRows, *prompts: list[int], most: int = 9, **options: float) -> list[Row]:
    """Return rows of prompts of one length, each with the likeliest tokens by default."""
    return [row for row in maybe_begun(rows, *prompts, most=most, emitted=[], **options) if row]


def maybe_begun(
    rows: DecodedRows, *prompts: list[int], most: int, emitted: Sequence[int], **options: float
) -> list[Row | None]:
    names = {"temperature": 0.0, "top_p": 1.0, "presence": 0.0, "frequency": 0.0, "seed": -1}
    values = [np.array([value] * len(prompts)) for value in (names | options).values()]
    so_far = np.array([emitted] * len(prompts), np.int64)
    return rows.begin(np.array(prompts, np.int64), np.array([most] * len(prompts)), *values, so_far)


def stepped(rows: DecodedRows, live: list[Row]) -> list[tuple[list[int], bool]]:
    tokens, ended = rows.step(live)
    return [*zip(tokens, ended, strict=True)]


PROMPTS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), PROMPTS, st.integers(1, 12)),
        st.tuples(st.sampled_from(["step", "leave", "part", "fails"]), st.integers(0, 99)),
    ),
    max_size=30,
)


class Fails:
    """A decoder that may fail."""

    vocabulary = VOCABULARY

    def __init__(self) -> None:
        self.now = False

    def next_scores(self, *arguments: Any) -> Any:
        if self.now:
            raise RuntimeError("out of memory")
        return PLAIN.next_scores(*arguments)


@given(EVENTS, st.integers(1, 20))
def test_a_text_is_the_same_with_any_rows_beside_it(events: list[Any], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decoded_rows, "PIECE", piece)
        play(events)


def play(events: list[Any]) -> None:
    """Let rows join, run, leave and fail, and check that each gets the text that it has alone."""
    model: Any = Fails()
    rows = DecodedRows(model, LIMIT, ends=(3,))
    live: dict[Row, tuple[list[int], int, list[int]]] = {}

    def run(some: list[Row]) -> None:
        given = stepped(rows, some)
        assert any(tokens for tokens, _ in given) or any(row.length for row in some)
        for row, (tokens, ended) in zip(some, given, strict=True):
            prompt, most, text = live[row]
            text += tokens
            wanted = continued(MODEL, prompt, most, ends=(3,))
            assert text == wanted[: len(text)]
            assert ended == (len(text) == len(wanted))
            if ended:
                rows.end(row, "done")
                del live[row]

    for event in events:
        match event:
            case ("join", prompt, most):
                (row,) = begun(rows, prompt, most=most)
                live[row] = prompt, most, []
            case ("leave", number) if live:
                row = [*live][number % len(live)]
                rows.end(row, "cancelled")
                del live[row]
            case ("part", number) if live:
                run([*live][: 1 + number % len(live)])
            case ("fails", _) if live:
                model.now = True
                with pytest.raises(RuntimeError):
                    rows.step([*live])
                model.now = False
            case ("step", _) if live:
                run([*live])
    while live:
        run([*live])


def test_prompts_of_one_length_begin_together() -> None:
    rows = DecodedRows(PLAIN, LIMIT, ())
    prompts = [[1, 2], [3, 4], [5, 6]]
    live = begun(rows, *prompts, most=3)
    found = [stepped(rows, live) for _ in range(3)]
    for number, prompt in enumerate(prompts):
        assert [step[number][0] for step in found] == [[t] for t in continued(MODEL, prompt, 3)]
    assert [[end for _, end in step] for step in found] == [[False] * 3, [False] * 3, [True] * 3]


@pytest.mark.parametrize(
    ("unread", "begun", "most", "found"),
    [
        ([3], False, 8, (1, 3)),
        ([8], False, 8, (1, 8)),
        ([9], False, 8, (1, 8)),
        ([9, 1], False, 8, (1, 8)),
        ([4, 4], False, 8, (2, 4)),
        ([4, 4, 1], False, 8, (2, 4)),
        ([2, 2, 2, 2, 2], False, 8, (4, 2)),
        ([2, 4, 1], False, 8, (2, 4)),
        ([2, 5], False, 8, (1, 2)),
        ([4, 1, 1], False, 12, (3, 4)),
        ([3, 1], True, 8, (1, 3)),
        ([30, 1], True, 8, (1, 8)),
    ],
)
def test_prompts_are_read_together_or_in_pieces(
    unread: list[int], begun: bool, most: int, found: tuple[int, int]
) -> None:
    assert read_together(unread, begun, most) == found


def test_a_long_prompt_stops_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_rows, "PIECE", 4)
    rows = DecodedRows(PLAIN, LIMIT, ())
    (short,) = begun(rows, [1, 2], most=5)
    (long,) = begun(rows, [3, 4, 5, 6] * 3, most=2)
    found = [stepped(rows, [short, long]) for _ in range(5)]
    assert [step[0][0] for step in found] == [[t] for t in continued(MODEL, [1, 2], 5)]
    wanted = continued(MODEL, [3, 4, 5, 6] * 3, 2)
    assert [step[1] for step in found] == [
        ([], False),
        ([], False),
        ([], False),
        ([wanted[0]], False),
        ([wanted[1]], True),
    ]


def test_no_token_is_made_where_none_is_wanted() -> None:
    rows = DecodedRows(PLAIN, LIMIT, ())
    assert stepped(rows, begun(rows, [1, 2], most=0))[0][1]


def test_a_text_ends_where_the_model_knows_no_further_position() -> None:
    rows = DecodedRows(PLAIN, LIMIT, ())
    (row,) = begun(rows, [1] * (LIMIT - 2), most=1000)
    assert [stepped(rows, [row])[0][1] for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "has 0 tokens; it must have from 1 to 63"),
        ([1] * LIMIT, "has 64 tokens"),
        ([1, -1], "the token -1; tokens are from 0 to 19"),
        ([VOCABULARY], "the token 20;"),
    ],
)
def test_prompts_that_are_none_are_refused(prompt: list[int], words: str) -> None:
    rows = DecodedRows(PLAIN, LIMIT, ())
    with pytest.raises(InvalidInput) as caught:
        begun(rows, prompt)
    assert words in str(caught.value)


def test_rows_sample_as_they_are_asked() -> None:
    rows = DecodedRows(PLAIN, LIMIT, ())

    def text(**options: float) -> list[int]:
        (row,) = begun(rows, [1, 2, 3], most=12, **options)
        return [stepped(rows, [row])[0][0][0] for _ in range(12)]

    likeliest = text()
    assert text(temperature=2.0, seed=5) == text(temperature=2.0, seed=5) != likeliest
    assert text(temperature=2.0, top_p=0.0, seed=5) == likeliest
    assert len({*text(frequency=100.0)}) == 12


@given(
    st.integers(1, 11),
    st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.0, 0.7, 2.0]),
            "top_p": st.sampled_from([0.5, 1.0]),
            "presence": st.sampled_from([0.0, 1.5]),
            "frequency": st.sampled_from([0.0, 0.5]),
            "seed": st.integers(0, 99),
        }
    ),
)
def test_a_text_that_goes_on_elsewhere_is_the_undisturbed_one(
    behind: int, options: dict[str, float]
) -> None:
    rows = DecodedRows(PLAIN, LIMIT, ())

    def text(count: int, emitted: list[int]) -> list[int]:
        (row,) = maybe_begun(rows, [1, 2, 3], most=count, emitted=emitted, **options)
        assert row is not None
        found = [stepped(rows, [row])[0] for _ in range(count)]
        assert [ended for _, ended in found] == [False] * (count - 1) + [True]
        return [token for tokens, _ in found for token in tokens]

    whole = text(12, [])
    assert text(12 - behind, whole[:behind]) == whole[behind:]


def test_nothing_is_missing_behind_the_end_of_a_text() -> None:
    rows = DecodedRows(PLAIN, LIMIT, ends=(3,))

    def goes_on(prompt: list[int], emitted: list[int]) -> bool:
        (row,) = maybe_begun(rows, prompt, most=9, emitted=emitted)
        return row is not None

    assert goes_on([1, 3], [])
    assert goes_on([1], [3, 4])
    assert not goes_on([1], [4, 3])
    assert goes_on([1], [4] * (LIMIT - 2))
    assert not goes_on([1], [4] * (LIMIT - 1))


def test_tokens_that_were_emitted_are_checked_too() -> None:
    with pytest.raises(InvalidInput, match="the token 20;"):
        maybe_begun(DecodedRows(PLAIN, LIMIT, ()), [1], most=9, emitted=[VOCABULARY])


def test_a_row_costs_the_tokens_that_it_may_hold() -> None:
    assert DecodedRows.cost(np.array([1, 2, 3]), 7, 0.0, np.array([], np.int64)) == 10
    assert DecodedRows.cost(np.array([1, 2, 3]), 7, 0.0, np.array([4, 5])) == 12
