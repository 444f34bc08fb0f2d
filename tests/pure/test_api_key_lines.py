"""Lines of a file of API keys: options behind a key, and errors that never quote a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.account import PriorityClass
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.api_key_lines import OPTIONS, KeyOptions, read_keys

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"
DIGEST = "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f"
INTERACTIVE, NORMAL, BULK = PriorityClass.INTERACTIVE, PriorityClass.NORMAL, PriorityClass.BULK

RIGHT = [
    ("", KeyOptions()),
    ("weight=1", KeyOptions(weight=1)),
    ("  weight=4 ", KeyOptions(weight=4)),
    ("weight=256", KeyOptions(weight=256)),
    ("class=interactive", KeyOptions(priority=INTERACTIVE)),
    ("class=normal", KeyOptions(priority=NORMAL)),
    ("class=bulk", KeyOptions(priority=BULK)),
    ("highest=interactive", KeyOptions(highest=INTERACTIVE)),
    ("highest=normal", KeyOptions(highest=NORMAL)),
    # Its requests that name no class cannot be above it.
    ("highest=bulk", KeyOptions(priority=BULK, highest=BULK)),
    ("class=bulk highest=normal", KeyOptions(priority=BULK, highest=NORMAL)),
    ("highest=normal class=normal", KeyOptions(highest=NORMAL)),
    ("class=interactive highest=interactive", KeyOptions(priority=INTERACTIVE)),
    ("name=shop-2", KeyOptions(name="shop-2")),
    ("highest=bulk name=a", KeyOptions(priority=BULK, highest=BULK, name="a")),
    ("in_flight=100", KeyOptions(in_flight=100)),
    ("requests_per_s=50", KeyOptions(requests_per_s=50.0)),
    ("model_s_per_s=0.5 highest=bulk", KeyOptions(1, BULK, BULK, model_s_per_s=0.5)),
    ("weight=2\thighest=normal   class=bulk", KeyOptions(2, BULK, NORMAL)),
]


@pytest.mark.parametrize(("options", "wanted"), RIGHT)
@pytest.mark.parametrize("key", [KEY, DIGEST])
def test_options_may_stand_behind_a_key(key: str, options: str, wanted: KeyOptions) -> None:
    found = read_keys(f"{OTHER}\n{key} {options}\n")
    assert [*found.values()] == [KeyOptions(), wanted]


_CLASSES = "takes interactive, normal or bulk"
_WEIGHTS = "takes a number from 1 to 256"
_NAMES = "takes 1 to 15 letters, digits and dashes, but not unix or other"
WRONG = [
    ("weight=0", f"has 'weight=0' behind its API key; weight= {_WEIGHTS}"),
    ("weight=257", _WEIGHTS),
    ("weight=1000", _WEIGHTS),
    ("weight=-1", _WEIGHTS),
    ("weight=", _WEIGHTS),
    ("weight", _WEIGHTS),
    ("weight=1.5", _WEIGHTS),
    ("weight=\u0663", _WEIGHTS),
    (
        "weight=2 x",
        "has 'x' behind its API key, not class=, highest=, in_flight=, model_s_per_s=, ",
    ),
    ("4", "has '4' behind its API key, not class=, highest=, in_flight=, model_s_per_s=, "),
    ("wieght=4", "has 'wieght=4' behind its API key, not class="),
    ("weight=2 weight=2", "has weight= twice behind its API key"),
    ("class=urgent", f"has 'class=urgent' behind its API key; class= {_CLASSES}"),
    ("class=Bulk", f"class= {_CLASSES}"),
    ("class=", f"class= {_CLASSES}"),
    ("highest=1", f"has 'highest=1' behind its API key; highest= {_CLASSES}"),
    ("class=interactive highest=normal", "class=interactive, which is above highest=normal"),
    ("highest=bulk class=interactive", "class=interactive, which is above highest=bulk"),
    ("class=normal highest=bulk", "class=normal, which is above highest=bulk"),
    ("name=", _NAMES),
    ("name=a_b", _NAMES),
    ("name=caf\u00e9", _NAMES),
    ("name=unix", _NAMES),
    ("name=other", _NAMES),
    (f"name={OTHER}", f"has a word of 21 characters behind its API key; name= {_NAMES}"),
    ("in_flight=0", "in_flight= takes a number from 1 to "),
    ("in_flight=1.5", "in_flight= takes a number from 1 to "),
    ("requests_per_s=0", "requests_per_s= takes a number above 0, at most 1000000"),
    ("requests_per_s=1000000.1", "requests_per_s= takes a number above 0, at most 1000000"),
    ("model_s_per_s=nan", "model_s_per_s= takes a number above 0, at most 1024"),
    ("model_s_per_s=1e2", "model_s_per_s= takes a number above 0, at most 1024"),
    (OTHER, "has a word of 16 characters behind its API key, not class="),
    (f"weight={OTHER}", f"has a word of 23 characters behind its API key; weight= {_WEIGHTS}"),
    (f"{OTHER[:15]}=", "has a word of 16 characters behind its API key, not class="),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_a_wrong_option_is_refused_with_its_line_and_a_right_one(
    options: str, message: str
) -> None:
    with pytest.raises(StartupError) as caught:
        read_keys(f"# keys\n{OTHER}\n{KEY} {options}\n")
    assert str(caught.value).startswith("line 3 ")
    assert message in str(caught.value)


@given(
    st.lists(
        st.sampled_from([*(f"{name}=" for name in OPTIONS), "x=", "sha256:", ""]),
        min_size=2,
        max_size=4,
    )
)
def test_no_error_quotes_a_key(places: list[str]) -> None:
    line = " ".join(f"{place}{OTHER}" for place in places)
    with pytest.raises(StartupError) as caught:
        read_keys(line)
    assert OTHER not in str(caught.value)
