"""Fork server that a sandbox keeps from its process group. Tests engine/process/fork_server.py."""

import errno
import os
import socket

import pytest

from ringbatch.engine.process import fork_server


def test_a_fork_server_that_may_make_no_group_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The supervisor executes processes in its place."""

    def refuse(_pid: int, _group: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "setpgid", refuse)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SystemExit) as end:
        fork_server.run(theirs, os.getpid(), [])
    assert end.value.code == 1
