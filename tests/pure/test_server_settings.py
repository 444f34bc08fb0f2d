"""The settings of tracing and logging as Triton's extensions have them."""

import logging
from typing import Any

import pytest

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.v2.server_settings import ServerSettings, expect_in_force
from ringbatch.shm.errors import InvalidRequest


@pytest.mark.parametrize(
    ("settings", "level", "rate"),
    [
        (ServerSettings(), "OFF", "0"),
        (ServerSettings(trace_share=0.01), "OFF", "0"),
        (ServerSettings(traced=True, trace_share=0.01), "TIMESTAMPS", "100"),
        (ServerSettings(traced=True, trace_share=1), "TIMESTAMPS", "1"),
        (ServerSettings(traced=True, trace_share=0), "TIMESTAMPS", "0"),
    ],
)
def test_tracing_settings_are_reported(settings: ServerSettings, level: str, rate: str) -> None:
    found = settings.trace()
    assert (found["trace_level"], found["trace_rate"]) == ([level], rate)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (logging.DEBUG, (1, True, True, True)),
        (logging.INFO, (0, True, True, True)),
        (logging.WARNING, (0, False, True, True)),
        (logging.CRITICAL, (0, False, False, False)),
    ],
)
def test_logging_settings_are_reported(level: int, expected: tuple[int, bool, bool, bool]) -> None:
    found = ServerSettings(level=level).log()
    names = ("log_verbose_level", "log_info", "log_warning", "log_error")
    assert tuple(found[name] for name in names) == expected


@pytest.mark.parametrize("value", [["OFF"], "OFF", None, []])
def test_a_setting_may_be_set_to_its_value(value: Any) -> None:
    expect_in_force({"trace_level": value}, ServerSettings().trace())


@pytest.mark.parametrize(
    ("wanted", "kind", "words"),
    [
        (
            {"trace_level": ["TENSORS"]},
            NotSupported,
            'trace_level is "OFF" and cannot be set to "T',
        ),
        ({"trace_level": ["OFF", "TENSORS"]}, NotSupported, r"\[server\] trace_endpoint"),
        ({"trace_count": "7"}, NotSupported, 'trace_count is "-1" and cannot be set to "7"'),
        ({"trace_odd": "7"}, InvalidRequest, 'no setting "trace_odd"; there are trace_level, '),
        ([], InvalidRequest, "the settings are a list, not an object"),
    ],
)
def test_anything_else_is_refused(wanted: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        expect_in_force(wanted, ServerSettings().trace())
