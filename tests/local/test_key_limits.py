"""Limits of API keys in their file: read, read again, and kept while the file is wrong."""

from pathlib import Path

import pytest

from ringbatch.engine.collector.account_limits import LimitTable
from ringbatch.engine.collector.key_limits import KeyLimits
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.account import identity_of
from ringbatch.shm.account_limits import AccountLimits
from ringbatch.shm.host.credentials import key_digests

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"
EACH = AccountLimits(in_flight=5, requests_per_s=7)
SEED = 99


def private(path: Path, text: str) -> Path:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    return new.rename(path)


def limits(table: LimitTable | None, path: Path, key: str) -> AccountLimits:
    """The limits of the account that frontends give the requests with a key."""
    assert table is not None
    accounts = Accounts(SEED, keys=ApiKeys(key_digests(path)))
    return table.of(identity_of(accounts.of_key(None, key)))


def test_a_keys_own_limits_win_and_are_read_again(tmp_path: Path) -> None:
    path = private(tmp_path / "keys", f"{KEY} in_flight=2 weight=3\n{OTHER}\n")
    keys = KeyLimits(EACH, path, SEED)
    table = keys.look()
    assert limits(table, path, KEY) == AccountLimits(2, 7)
    assert limits(table, path, OTHER) == EACH
    assert keys.look() is None
    private(path, f"{KEY}\n{OTHER} model_s_per_s=0.5\n")
    table = keys.look()
    assert limits(table, path, KEY) == EACH
    assert limits(table, path, OTHER) == AccountLimits(5, 7, 0.5)


def test_a_wrong_file_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = private(tmp_path / "keys", f"{KEY} in_flight=none\n")
    keys = KeyLimits(EACH, path, SEED)
    assert keys.look() is None
    assert keys.look() is None
    (record,) = caplog.records
    assert "the limits of API keys stay as they were" in record.message
    assert KEY not in record.message
    private(path, f"{KEY} in_flight=2\n")
    assert limits(keys.look(), path, KEY) == AccountLimits(2, 7)
