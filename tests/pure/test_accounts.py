"""Accounts of requests: by key, by address, behind proxies, and safe from forged headers."""

import hashlib
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.security.accounts import Accounts, Peer, forwarded_in
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.account import (
    CLASS_NAMES,
    NOBODY,
    PriorityClass,
    account_word,
    class_of,
    identity_of,
    weight_of,
    with_class,
    with_limit,
    word_for_slot,
)
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.api_key_lines import KeyOptions, read_keys

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"
PROXY, INNER = "10.0.0.7", "192.168.3.4"
TRUSTED = [PROXY, "192.168.0.0/16", "fd00::/8"]
START = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"


def keys() -> ApiKeys:
    return ApiKeys({hashlib.sha256(text.encode()).digest(): KeyOptions() for text in (KEY, OTHER)})


def account_at(host: str, accounts: Accounts | None = None) -> int:
    return (accounts or Accounts()).peer((host, 5)).account


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("2001:db8:0:1::1", "2001:0db8:0000:0001::0001", True),
        ("fe80::1%eth0", "fe80::1%eth1", True),
        ("::", "0.0.0.0", False),
    ],
)
def test_an_address_is_an_account(one: str, other: str, same: bool) -> None:
    assert (account_at(one) == account_at(other)) is same
    assert account_at(one) != NOBODY


@pytest.mark.parametrize("address", ["", None, (), "/run/x.sock", ("no address", 1), b"\0x"])
def test_all_without_an_address_are_one_account(address: Any) -> None:
    local = Accounts().peer(None)
    assert Accounts().peer(address) == local
    assert local.account not in (NOBODY, account_at("127.0.0.1"))
    assert not local.is_proxy


def test_clients_of_unix_sockets_are_a_proxys_only_if_trusted() -> None:
    assert Accounts(trusted_proxies=["unix"]).peer("").is_proxy
    assert not Accounts(trusted_proxies=["unix"]).peer(("127.0.0.1", 1)).is_proxy


def test_another_engine_has_other_accounts() -> None:
    assert account_at("10.0.0.1", Accounts(1)) != account_at("10.0.0.1", Accounts(2))


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("2001:db8:0:1:ffff::2", "2001:db8:0:1::/64"),
        ("::1", "::/64"),
        ("", "unix"),
    ],
)
def test_an_account_has_the_name_of_its_address(host: str, name: str) -> None:
    accounts = Accounts(3)
    word = account_word(account_at(host, accounts), PriorityClass.BULK, 7)
    assert accounts.name(word) == name


def test_an_account_has_the_name_of_its_key_and_never_the_key() -> None:
    accounts = Accounts(3, (), known := keys())
    word = accounts.of_key(None, KEY)
    name = f"key-{hashlib.sha256(KEY.encode()).hexdigest()[:8]}"
    assert accounts.name(word) == name
    known.replace({})
    assert accounts.name(word) == f"account-{identity_of(word):012x}"
    known.replace(read_keys(KEY))
    assert accounts.name(word) == name
    known.replace(read_keys(f"{KEY} name=shop weight=4"))
    assert accounts.name(word) == "shop"


@pytest.mark.parametrize("word", [NOBODY, account_word(NOBODY, PriorityClass.BULK, 5)])
def test_nobody_has_no_name(word: int) -> None:
    assert Accounts(3).name(word) == ""


def test_names_are_bounded_and_an_unknown_account_is_named_by_its_identity() -> None:
    accounts = Accounts(3)
    first = account_at("10.0.0.1", accounts)
    for number in range(10_000):
        account_at(f"10.1.{number >> 8}.{number & 255}", accounts)
        assert len(accounts._addresses) == len(accounts._known) <= 4096
    assert accounts.name(first) == f"account-{first:012x}"
    assert account_at("10.0.0.1", accounts) == first
    assert accounts.name(first) == "10.0.0.1"


FORWARDED = [
    # peer, headers, the client
    ("1.1.1.1", [], "1.1.1.1"),
    (PROXY, [], PROXY),
    (PROXY, ["2.2.2.2"], "2.2.2.2"),
    (PROXY, ["2.2.2.2, 3.3.3.3"], "3.3.3.3"),
    (PROXY, ["2.2.2.2", "3.3.3.3"], "3.3.3.3"),
    (PROXY, [f"2.2.2.2,3.3.3.3 ,\t{INNER}"], "3.3.3.3"),
    (PROXY, [f"2.2.2.2, {INNER}", PROXY], "2.2.2.2"),
    (PROXY, [f"{INNER}, {PROXY}"], INNER),
    (PROXY, ["2.2.2.2:4711"], "2.2.2.2"),
    (PROXY, ["2001:db8::1"], "2001:db8::1"),
    (PROXY, ["[2001:db8::1]:4711"], "2001:db8::1"),
    (PROXY, ["[2001:db8::1]"], "2001:db8::1"),
    (PROXY, ["::ffff:2.2.2.2"], "2.2.2.2"),
    (PROXY, [f"2.2.2.2, unknown, {INNER}"], INNER),
    (PROXY, ["2.2.2.2, unknown"], PROXY),
    (PROXY, ["2.2.2.2,"], PROXY),
    (PROXY, [""], PROXY),
    (PROXY, ["2.2.2.2, \xff"], PROXY),
    (PROXY, ["\xff, 2.2.2.2"], "2.2.2.2"),
    (f"::ffff:{PROXY}", ["2.2.2.2"], "2.2.2.2"),
    ("fd00::1", ["2.2.2.2"], "2.2.2.2"),
    # One that is not trusted may write what it likes.
    ("1.1.1.1", ["2.2.2.2"], "1.1.1.1"),
    ("1.1.1.1", [PROXY], "1.1.1.1"),
    ("10.0.0.8", ["2.2.2.2"], "10.0.0.8"),
    ("fe00::1", ["2.2.2.2"], "fe00::1"),
]


@pytest.mark.parametrize(("peer", "headers", "client"), FORWARDED)
def test_the_client_is_the_right_most_address_that_is_no_trusted_proxy(
    peer: str, headers: list[str], client: str
) -> None:
    accounts = Accounts(3, TRUSTED)
    values = [value.encode("latin-1") for value in headers]
    fields = [(b"x-forwarded-for", value) for value in values]
    lines = b"".join(b"x-FORWARDED-for: %b\r\n" % value for value in values)
    wanted = account_at(client, Accounts(3))
    end = accounts.peer((peer, 1))
    assert accounts.word(NOBODY, end, partial(forwarded_in, [(b"host", b"x"), *fields])) == wanted
    assert accounts.of_scope({"headers": fields, "client": (peer, 1)}) == wanted
    # The fast lane reads heads, and remembers their lines.
    reader = HeadReader(100, accounts=accounts)
    for _ in range(2):
        head = reader.read(START + lines + b"\r\n", end)
        assert head is not None
        assert head.account == wanted


@given(st.lists(st.text(st.characters(codec="latin-1"), max_size=20), max_size=5))
def test_no_header_makes_a_request_fail_or_nobodys(values: list[str]) -> None:
    accounts = Accounts(3, TRUSTED)
    peer = accounts.peer((PROXY, 1))
    found = accounts.behind(peer, [value.encode("latin-1") for value in values])
    assert 0 < found < 1 << 48


def test_the_beginning_of_a_long_header_is_the_clients_invention() -> None:
    accounts = Accounts(3, TRUSTED)
    peer = accounts.peer((PROXY, 1))
    hops = ["2.2.2.2", *[INNER] * 31]
    assert accounts.behind(peer, [", ".join(hops).encode()]) == account_at("2.2.2.2", Accounts(3))
    hops = ["2.2.2.2", *[INNER] * 32]
    assert accounts.behind(peer, [", ".join(hops).encode()]) == account_at(INNER, Accounts(3))


def test_a_key_counts_more_than_an_address() -> None:
    accounts = Accounts(3, TRUSTED, keys())
    first = accounts.of_key(None, KEY)
    assert first == accounts.of_key(f"Bearer {KEY}", None) != NOBODY
    assert accounts.of_key(None, OTHER) not in (first, NOBODY)
    for peer in ("1.1.1.1", PROXY):
        end = accounts.peer((peer, 1))
        assert accounts.word(first, end, lambda: [b"2.2.2.2"]) == first
        fields = [(b"x-forwarded-for", b"2.2.2.2"), (b"x-api-key", KEY.encode())]
        assert accounts.of_scope({"headers": fields, "client": (peer, 1)}) == first


def test_a_key_brings_its_weight() -> None:
    digests = [hashlib.sha256(text.encode()).digest() for text in (KEY, OTHER)]
    known = ApiKeys({digests[0]: KeyOptions(4), digests[1]: KeyOptions(256)})
    accounts = Accounts(3, (), known)
    words = [accounts.of_key(None, text) for text in (KEY, OTHER)]
    assert [weight_of(word) for word in words] == [4, 256]
    assert all(0 < word < 1 << 64 for word in words)
    known.replace({digests[0]: KeyOptions(2)})
    changed = accounts.of_key(None, KEY)
    assert weight_of(changed) == 2
    assert identity_of(changed) == identity_of(words[0])
    assert accounts.of_key(None, OTHER) == NOBODY


@pytest.mark.parametrize("server", [None, ApiKeys({})])
def test_a_foreign_key_makes_no_account(server: ApiKeys | None) -> None:
    accounts = Accounts(3, (), server)
    assert accounts.of_key(f"Bearer {KEY}", None) == accounts.of_key(None, KEY) == NOBODY
    fields = [(b"x-api-key", KEY.encode())]
    scope = {"headers": fields, "client": ("1.1.1.1", 1)}
    assert accounts.of_scope(scope) == account_at("1.1.1.1", Accounts(3))


def test_the_fast_lane_knows_the_account_of_a_key_until_the_keys_change() -> None:
    known = keys()
    accounts = Accounts(3, (), known)
    reader = HeadReader(100, keys=known, accounts=accounts)
    peer = accounts.peer(("1.1.1.1", 1))
    found = []
    for key in (KEY, OTHER, KEY):
        head = reader.read(START + b"X-API-Key: %b\r\n\r\n" % key.encode(), peer)
        assert head is not None
        found.append(head.account)
    assert found[0] == found[2] != found[1]
    assert found[0] == accounts.of_key(None, KEY)


def test_the_same_head_from_two_addresses_has_two_accounts() -> None:
    accounts = Accounts(3)
    reader = HeadReader(100, accounts=accounts)
    found = []
    for host in ("127.0.0.1", "127.0.0.2", "127.0.0.1"):
        head = reader.read(START + b"\r\n", accounts.peer((host, 1)))
        assert head is not None
        found.append(head.account)
    assert found[0] == found[2] != found[1]


def test_switched_off_all_are_nobody() -> None:
    accounts = Accounts(3, TRUSTED, keys(), on=False)
    assert accounts.peer((PROXY, 1)) == Peer(NOBODY, is_proxy=False)
    assert accounts.of_key(None, KEY) == NOBODY
    fields = [(b"x-forwarded-for", b"2.2.2.2"), (b"x-api-key", KEY.encode())]
    assert accounts.of_scope({"headers": fields, "client": (PROXY, 1)}) == NOBODY


def test_memory_is_bounded_for_any_addresses() -> None:
    accounts = Accounts(3, TRUSTED)
    peer = accounts.peer((PROXY, 1))
    before = account_at("1.2.3.4", accounts)
    for number in range(10_000):
        accounts.behind(peer, [b"11.%d.%d.1" % divmod(number, 256)])
        assert len(accounts._known) <= 4096
    accounts.behind(peer, [b"fe80::1%" + b"x" * 1000])
    assert max(map(len, accounts._known)) <= 64
    assert account_at("1.2.3.4", accounts) == before


CLASSES = [
    ([], PriorityClass.NORMAL),
    (["interactive"], PriorityClass.INTERACTIVE),
    (["normal"], PriorityClass.NORMAL),
    (["bulk"], PriorityClass.BULK),
    (["Bulk"], PriorityClass.BULK),
    ([" bulk\t"], PriorityClass.BULK),
]


@pytest.mark.parametrize(("values", "priority"), CLASSES)
@pytest.mark.parametrize("key", [None, KEY])
def test_a_request_may_name_its_class(
    values: list[str], priority: PriorityClass, key: str | None
) -> None:
    known = None if key is None else keys()
    accounts = Accounts(3, TRUSTED, known)
    own = [] if key is None else [(b"x-api-key", key.encode())]
    fields = [(b"x-forwarded-for", b"2.2.2.2"), *own]
    peer = accounts.peer((PROXY, 1))
    plain = accounts.word(accounts.of_key(None, key), peer, partial(forwarded_in, fields))
    named = [(b"x-priority", value.encode()) for value in values]
    wanted = with_class(plain, priority)
    if values:
        # The body may ask for less then, and not for more.
        wanted = with_limit(wanted, priority)
    assert class_of(wanted) is priority
    assert accounts.of_scope({"headers": [*fields, *named], "client": (PROXY, 1)}) == wanted
    reader = HeadReader(100, keys=known, accounts=accounts)
    lines = b"".join(b"%b: %b\r\n" % line for line in [*fields, *named])
    for _ in range(2):
        head = reader.read(START + lines + b"\r\n", peer)
        assert head is not None
        assert head.account == wanted


@pytest.mark.parametrize("values", [["urgent"], [""], ["bulk", "bulk"], ["bulk,"], ["\xff"], ["1"]])
def test_another_word_is_refused(values: list[str]) -> None:
    accounts = Accounts(3)
    named = [(b"x-priority", value.encode("latin-1")) for value in values]
    scope = {"headers": named, "client": ("1.1.1.1", 1)}
    with pytest.raises(InvalidRequest, match="not interactive, normal or bulk"):
        accounts.of_scope(scope)
    # An application may have a header of that name with other words.
    assert accounts.of_scope(scope, lenient=True) == account_at("1.1.1.1", accounts)
    lines = b"".join(b"%b: %b\r\n" % line for line in named)
    assert HeadReader(100, accounts=accounts).read(START + lines + b"\r\n") is None
    off = Accounts(on=False)
    assert off.of_scope(scope) == NOBODY
    assert HeadReader(100, accounts=off).read(START + lines + b"\r\n") is not None


def test_heads_of_two_classes_are_not_taken_for_each_other() -> None:
    reader = HeadReader(100, accounts=Accounts(3))
    found = []
    for name in (b"bulk", b"interactive", b"bulk"):
        head = reader.read(START + b"X-Priority: %b\r\n\r\n" % name)
        assert head is not None
        found.append(class_of(head.account))
    assert found == [PriorityClass.BULK, PriorityClass.INTERACTIVE, PriorityClass.BULK]


INTERACTIVE, NORMAL, BULK = PriorityClass.INTERACTIVE, PriorityClass.NORMAL, PriorityClass.BULK
KEYS_CLASSES = [
    # options of the key, what the request names, what it gets
    ("", "", NORMAL),
    ("class=bulk", "", BULK),
    ("class=interactive", "", INTERACTIVE),
    ("class=bulk", "interactive", INTERACTIVE),
    ("class=interactive", "bulk", BULK),
    ("highest=normal", "", NORMAL),
    ("highest=normal", "interactive", NORMAL),
    ("highest=normal", "normal", NORMAL),
    ("highest=normal", "bulk", BULK),
    ("highest=bulk", "", BULK),
    ("highest=bulk", "interactive", BULK),
    ("class=bulk highest=normal", "", BULK),
    ("class=bulk highest=normal", "interactive", NORMAL),
]


def found_by(accounts: Accounts, keys: ApiKeys | None, *fields: tuple[bytes, bytes]) -> int:
    """The account word of a request, which is the same on the fast lane and beside it."""
    found = accounts.of_scope({"headers": fields, "client": (PROXY, 1)})
    reader = HeadReader(100, keys=keys, accounts=accounts)
    lines = b"".join(b"%b: %b\r\n" % line for line in fields)
    for _ in range(2):
        head = reader.read(START + lines + b"\r\n", accounts.peer((PROXY, 1)))
        assert head is not None
        assert head.account == found
    return found


def named(priority: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-priority", priority.encode())] if priority else []


@pytest.mark.parametrize(("options", "header", "priority"), KEYS_CLASSES)
def test_a_key_has_a_class_and_a_highest_class(
    options: str, header: str, priority: PriorityClass
) -> None:
    known = ApiKeys(read_keys(f"{KEY} {options}\n"))
    accounts = Accounts(3, (), known)
    plain = Accounts(3, (), keys()).of_key(None, KEY)
    found = found_by(accounts, known, (b"x-api-key", KEY.encode()), *named(header))
    assert word_for_slot(found) == with_class(plain, priority)


BODIES = [
    # the highest class, the class in the header, the level in the body, the class of the request
    ("interactive", "", 1, INTERACTIVE),
    ("interactive", "", 2, NORMAL),
    ("interactive", "", 3, BULK),
    ("interactive", "", 0, NORMAL),
    ("interactive", "bulk", 1, BULK),
    ("interactive", "normal", 1, NORMAL),
    ("interactive", "normal", 3, BULK),
    ("interactive", "interactive", 0, INTERACTIVE),
    ("interactive", "interactive", 3, BULK),
    ("normal", "", 0, NORMAL),
    ("normal", "", 1, NORMAL),
    ("normal", "", 3, BULK),
    ("normal", "interactive", 1, NORMAL),
    ("normal", "bulk", 1, BULK),
    ("bulk", "", 0, BULK),
    ("bulk", "", 1, BULK),
    ("bulk", "interactive", 2, BULK),
]


@pytest.mark.parametrize(("highest", "header", "level", "priority"), BODIES)
@pytest.mark.parametrize("with_key", [True, False])
@pytest.mark.parametrize("proxies", [[], [PROXY]])
def test_of_header_and_body_the_lower_class_counts_and_neither_is_above_the_highest(
    highest: str,
    header: str,
    level: int,
    priority: PriorityClass,
    with_key: bool,
    proxies: list[str],
) -> None:
    if with_key:
        known = ApiKeys(read_keys(f"{KEY} highest={highest}\n"))
        accounts = Accounts(3, proxies, known)
        fields = [(b"x-api-key", KEY.encode())]
        plain = Accounts(3, (), keys()).of_key(None, KEY)
    else:
        known = None
        accounts = Accounts(3, proxies, highest=CLASS_NAMES[highest])
        fields = [(b"x-forwarded-for", b"2.2.2.2")]
        plain = account_at("2.2.2.2" if proxies else PROXY, Accounts(3))
    found = found_by(accounts, known, *fields, *named(header))
    assert word_for_slot(found, level) == with_class(plain, priority)
