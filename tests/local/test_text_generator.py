"""A text generator in a frontend: prompts and chats to tokens, and these to parts for slots.

Tests frontend/generation/prompts.py, frontend/generation/generation_tag.py and
frontend/texts/loading.py.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from frontend_harness import FrontendHarness
from text_generators import END, LIMIT, tokenizer, tokens, write_generator

from ringbatch.engine.models.model import Options
from ringbatch.engine.runtimes.generator import open_generator
from ringbatch.frontend.generation.chat_template import ChatTemplate
from ringbatch.frontend.generation.completion_bodies import Completion, read
from ringbatch.frontend.generation.offloaded_prompts import decode_prompts, read_prompts
from ringbatch.frontend.generation.prompts import Prompts, Tokens, TokensRendering
from ringbatch.frontend.generation.text_generator import TextGenerator
from ringbatch.frontend.texts.loading import Unusable
from ringbatch.frontend.texts.tokenizing import thread
from ringbatch.shm.errors import InvalidRequest, ModelFailed, ModelNotReady
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec, dumps, loads
from ringbatch.shm.request_context import REQUEST_CONTEXT

WIDE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def spec_of(folder: Path) -> ModelSpec:
    model = open_generator(folder, Options(max_batch_size=8, threads=1))
    return ModelSpec(
        index=0,
        name="m",
        platform="generator",
        inputs=model.inputs,
        outputs=model.outputs,
        max_batch_size=1,
        max_latency_ns=0,
        timeout_ns=1,
        policy="eager",
        workers=(0,),
        in_parts=True,
        places=8,
        generator=model.generator,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_generator(tmp_path / "m")


@pytest.fixture
def spec(folder: Path) -> ModelSpec:
    return spec_of(folder)


def asked(**members: Any) -> Completion:
    return read(orjson.dumps(members), chat="messages" in members)


def chat_of(*contents: str, **members: Any) -> Completion:
    messages = [{"role": "user", "content": content} for content in contents]
    return asked(messages=messages, **members)


def test_the_model_table_carries_it(spec: ModelSpec) -> None:
    assert loads(dumps((spec,))) == (spec,)


def test_prompts_become_tokens(spec: ModelSpec) -> None:
    generator = TextGenerator(spec)
    assert generator.prompts_of(asked(prompt="a €")) == [tokens("a €")]
    assert generator.prompts_of(asked(prompt=[3, 1, 2])) == [[3, 1, 2]]


def test_chats_become_tokens_by_the_template(spec: ModelSpec) -> None:
    expected = tokens("<|user|>Hi<|user|>there<|assistant|>")
    assert TextGenerator(spec).prompts_of(chat_of("Hi", "there")) == [expected]


def test_a_file_of_its_own_goes_before_the_template_in_the_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ eos_token }}" + WIDE)
    assert TextGenerator(spec_of(folder)).prompts_of(chat_of("Hi")) == [tokens(f"{END}Hi")]


def test_special_tokens_of_a_tokenizer_stand_in_prompts_and_not_twice_in_chats(
    folder: Path,
) -> None:
    from tokenizers import Tokenizer, processors

    path = str(folder / "tokenizer.json")
    made = Tokenizer.from_file(path)
    end = made.token_to_id(END)
    made.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, end)]
    )
    made.save(path)
    generator = TextGenerator(spec_of(folder))
    assert generator.prompts_of(asked(prompt="a")) == [[end, *tokens("a")]]
    assert generator.prompts_of(chat_of("a")) == [tokens("<|user|>a<|assistant|>")]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (asked(prompt=""), "the prompt has no tokens"),
        (asked(prompt="a" * LIMIT), f"maximum context length is {LIMIT} tokens"),
        (asked(prompt="a", max_tokens=LIMIT), f"the prompt has 1 and {LIMIT} for the answer"),
        (asked(prompt=[1] * LIMIT), f"the prompt has {LIMIT};"),
        (asked(prompt=["a", "b" * LIMIT]), f"tokens, but prompt 1 has {LIMIT};"),
        (asked(prompt=["a", "b", ""]), "prompt 2 has no tokens"),
        (asked(prompt=[[-1], [1]]), "prompt 0 has the token -1"),
        (asked(prompt="a" * (LIMIT * 256 + 1)), f"{LIMIT * 256 + 1} characters"),
        (asked(prompt=[1, 10**6]), "the prompt has the token 1000000"),
        (asked(prompt=[-1]), "the prompt has the token -1"),
        (asked(messages=[{"role": "x", "content": ""}]), "messages: unknown role x"),
    ],
)
def test_prompts_that_the_model_cannot_take_are_refused(
    spec: ModelSpec, request_: Completion, words: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        TextGenerator(spec).prompts_of(request_)
    assert words in str(refused.value)


def test_the_longest_prompt_leaves_room_for_one_token(spec: ModelSpec) -> None:
    generator = TextGenerator(spec)
    (ids,) = generator.prompts_of(asked(prompt="a" * (LIMIT - 1)))
    assert generator.max_tokens(asked(prompt=""), len(ids)) == 1
    assert generator.max_tokens(asked(prompt=""), 1) == 16
    assert generator.max_tokens(asked(prompt="", max_tokens=99), 1) == 99
    assert generator.max_tokens(chat_of(""), 6) == LIMIT - 6


def test_options_need_an_input_or_openai_s_default(spec: ModelSpec) -> None:
    generator = TextGenerator(spec)
    given: dict[str, Any] = {"temperature": 0.5, "seed": 4, "top_p": 1, "frequency_penalty": 0}
    assert generator.options(asked(prompt="", **given)) == {"temperature": 0.5, "seed": 4}
    others: dict[str, Any] = {"top_p": 0.5, "presence_penalty": 1}
    for name, value in others.items():
        with pytest.raises(InvalidRequest, match=f'"{name}" is {value:g}, but model "m" has no'):
            generator.options(asked(prompt="", **{name: value}))


def test_without_a_template_there_are_prompts_and_no_chats(tmp_path: Path) -> None:
    generator = TextGenerator(spec_of(write_generator(tmp_path / "bare", template=None)))
    assert generator.prompts_of(asked(prompt="a")) == [tokens("a")]
    with pytest.raises(InvalidRequest, match="has no chat template"):
        generator.prompts_of(chat_of("Hi"))


def test_a_broken_template_leaves_prompts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    generator = TextGenerator(spec_of(write_generator(tmp_path / "bad", template="{% if %}")))
    assert generator.prompts_of(asked(prompt="a")) == [tokens("a")]
    with pytest.raises(ModelNotReady, match="its chat template cannot be used"):
        generator.prompts_of(chat_of("Hi"))
    assert "the chat template is none that Jinja knows: line 1" in caplog.text


def test_files_that_have_changed_are_not_used(
    folder: Path, spec: ModelSpec, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "chat_template.jinja").write_text(WIDE)
    generator = TextGenerator(spec)
    generator.try_to_load()
    assert not generator.is_loaded
    assert "cannot be used" in generator.obstacle
    assert "is another by now" in caplog.text
    (folder / "chat_template.jinja").unlink()
    assert generator.prompts_of(asked(prompt="a")) == [tokens("a")]
    assert generator.obstacle == ""


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "é<"}]'),
        ("{{ messages[0].content | tojson(indent=1) }}", '"é<"'),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "é<!"),
        ("{% for m in messages %}{% break %}{% endfor %}a", "a"),
        ("{{ strftime_now('%%') }}", "%"),
        ("  {% if tools is none %}\n  none\n  {% endif %}\n", "  none\n"),
        ("{{ bos_token }}{{ add_generation_prompt }}", "<s>True"),
    ],
)
def test_templates_have_the_functions_of_transformers(template: str, text: str) -> None:
    messages = [{"role": "user", "content": "é<"}]
    assert ChatTemplate(template, {"bos_token": "<s>"}).text(messages) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages + 1 }}",
        "{{ messages[0].content.a.b }}",
    ],
)
def test_templates_cannot_leave_their_sandbox_nor_fail_a_frontend(template: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot write these messages"):
        ChatTemplate(template, {}).text([{"role": "user", "content": "a"}])


def test_a_template_that_is_none_is_refused() -> None:
    with pytest.raises(Unusable):
        ChatTemplate("{% nothing %}", {})


def test_another_process_reads_prompts_alike(spec: ModelSpec) -> None:
    specs = {"m": dumps((spec,)).decode()}
    for body in (
        {"prompt": "a €", "stop": ["x"]},
        {"prompt": [1, 2], "model": "m"},
        {"prompt": ["ab", [3], "c"], "n": 2},
    ):
        text = orjson.dumps(body)
        value, data = read_prompts((False, specs), [memoryview(text)])
        views = [memoryview(one) for one in data]
        found, ids = decode_prompts(json.loads(json.dumps(value)), views)
        here = read(text, chat=False)
        assert found == replace(here, prompts=[])
        assert ids == TextGenerator(spec).prompts_of(here)
    unknown = orjson.dumps({"prompt": "a", "model": "other"})
    value, data = read_prompts((False, specs), [memoryview(unknown)])
    assert value["model"] == "other"


def test_a_part_holds_the_prompt_the_options_and_defaults(spec: ModelSpec) -> None:
    rows, payload, key_bytes = Prompts(spec).part([5, 6, 7], {"max_tokens": 9, "seed": -1})
    frame = Frame(spec.inputs)
    assert (rows, key_bytes) == (1, frame.key_bytes)
    found = {}
    data = bytes(payload)
    places = frame.place(1, *frame.read_prefix(data)).parts
    for tensor, place in zip(spec.inputs, places, strict=True):
        array: Any = np.ndarray(place.shape, tensor.datatype.numpy, data, place.offset)
        found[tensor.name] = array.tolist()
    assert found == {"input_ids": [[5, 6, 7]], "max_tokens": [9], "seed": [-1], "temperature": [1]}


def test_a_part_holds_the_context_of_a_model_that_asks(spec: ModelSpec) -> None:
    asking = replace(spec, words=("x-tenant",))
    part = Prompts(asking).part([5], {"max_tokens": 1}, [(b"x-tenant", b"a")])
    assert b'"headers":{"x-tenant":"a"}' in bytes(part.payload)
    assert asking.carried[-1] == REQUEST_CONTEXT


def test_a_value_beyond_its_input_is_refused(spec: ModelSpec) -> None:
    small = replace(spec, inputs=tuple(replace_datatype(t, "INT32") for t in spec.inputs))
    with pytest.raises(InvalidRequest, match='"seed" is too large for the INT32'):
        Prompts(small).part([5], {"max_tokens": 1, "seed": 1 << 40})


def replace_datatype(tensor: Any, name: str) -> Any:
    default = None if tensor.default is None else 0
    return type(tensor)(tensor.name, name, tensor.shape, default=default)


def test_tokens_are_read_from_results_that_fit(spec: ModelSpec) -> None:
    frame = Frame(spec.outputs)
    place = frame.place(1, (2,))
    memory = bytearray(place.size)
    memory[: frame.prefix_bytes] = frame.prefix((2,), ())
    memory[place.parts[0].offset :] = np.array([4, 5], np.int64).tobytes()
    rendering = TokensRendering(spec)
    assert rendering.render([(1, memoryview(memory))], "") == Tokens([4, 5])
    with pytest.raises(ModelFailed):
        rendering.render([(1, memoryview(memory)[:-8])], "")
    for token in (-1, tokenizer().get_vocab_size()):
        memory[place.parts[0].offset :] = np.array([4, token], np.int64).tobytes()
        with pytest.raises(ModelFailed, match=f"gave the token {token}"):
            rendering.render([(1, memoryview(memory))], "")


def test_special_tokens_have_no_text(spec: ModelSpec) -> None:
    decoder = TextGenerator(spec).decoder()
    end: Any = tokenizer().token_to_id(END)
    ids = [*tokens("a"), end, *tokens("b")]
    assert [*map(decoder.add, ids)] == ["a", "", "b"]


def test_a_process_loads_tokenizers_before_the_first_request_if_it_gets_prompts(
    spec: ModelSpec,
) -> None:
    service = FrontendHarness(spec).service
    generator = service.models["m"].generator
    assert generator is not None
    thread().submit(int).result()
    assert not generator.is_loaded
    service.load_generators()
    thread().submit(int).result()
    assert generator.is_loaded
