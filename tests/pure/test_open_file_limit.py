"""The limit of open files is raised for connections, and a warning names one that is too low."""

import logging
import resource

import pytest

from ringbatch.shm.host.descriptors import OTHERS, connections_allowed

WANTED = 1000
NEEDED = WANTED + OTHERS
log = logging.getLogger("ringbatch.frontend")


@pytest.mark.parametrize(
    ("limits", "raised", "allowed"),
    [
        ((NEEDED, NEEDED), None, WANTED),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, WANTED),
        ((1024, resource.RLIM_INFINITY), (NEEDED, resource.RLIM_INFINITY), WANTED),
        ((1024, NEEDED + 1), (NEEDED, NEEDED + 1), WANTED),
        ((300, NEEDED - 1), (NEEDED - 1, NEEDED - 1), WANTED - 1),
        ((20, 20), (20, 20), 1),
    ],
)
def test_the_limit_is_raised_as_far_as_is_needed_and_allowed(
    limits: tuple[int, int],
    raised: tuple[int, int] | None,
    allowed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    new: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: new.append(pair))
    assert connections_allowed(WANTED, log) == allowed
    assert new == [raised] * (raised is not None)
    if allowed == WANTED:
        assert caplog.messages == []
    else:
        (words,) = caplog.messages
        assert f"at once: {allowed} instead of max_connections = {WANTED}; raise the limit" in words
        assert f"which is {limits[1]}, to {NEEDED} (LimitNOFILE=, ulimit -n)" in words
