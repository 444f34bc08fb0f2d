"""Configurations with model servers elsewhere: what is concluded from their addresses."""

import pytest
from config_documents import concluded, problems

from ringbatch.engine.config.description import describe


def test_several_addresses_are_one_model() -> None:
    text = '[models.m]\npath = ["http://a:1/p/", "http://b:1/p"]'
    config = concluded(text)
    (found,) = config.models
    assert found.path == "http://a:1/p http://b:1/p"
    assert (found.platform, found.workers, found.retry) == ("http", 8, "safe")
    assert config.passes_to is None
    assert 'path = ["http://a:1/p", "http://b:1/p"]' in describe(config)
    assert concluded(describe(config)) == config
    missing = '[models.m]\npath = "https://a:1"\nupstream_ca = "none.pem"'
    assert problems(missing, is_file=lambda _: False) == [
        'ringbatch.toml: [models.m] upstream_ca: found "none.pem", but it must be a file that '
        "exists; none is at /srv/none.pem"
    ]
    many = [f"http://h:{port}" for port in range(1, 33)]
    assert concluded(f"[models.m]\npath = {many}").models[0].workers == 64
    assert concluded(f"[models.m]\npath = {many}\nworkers = 3").models[0].workers == 3


def test_a_server_over_tls_is_one_that_nothing_is_passed_on_to() -> None:
    config = concluded('[models.m]\npath = "https://a:1"')
    assert (config.models[0].workers, config.passes_to) == (4, None)
    text = '[server]\nsidecar = true\npass_through = "http://a:1"\n'
    assert concluded(text + '[models.m]\npath = "https://a:1"').passes_to == "http://a:1"


def test_an_address_is_for_the_runtime_http_which_has_several_workers() -> None:
    text = (
        '[models.m]\npath = "http://h:1/a:predict"\n[models.n]\npath = "http://h:1/"\nworkers = 1'
    )
    config = concluded(text)
    first, second = config.models
    assert (first.path, first.platform, first.workers) == ("http://h:1/a:predict", "http", 4)
    assert (second.path, second.platform, second.workers) == ("http://h:1", "http", 1)
    assert first.batch_limit_s == first.timeout_s < first.hung_after_s
    assert config.passes_to == "http://h:1"


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ('[models.m]\npath = "m.py"', None),
        ('[models.m]\npath = "http://h:1"\n[models.n]\npath = "m.py"', None),
        ('[models.m]\npath = "http://h:1"\n[models.n]\npath = "http://h:2"', None),
        ('[server]\npass_through = "http://h:3"\n[models.m]\npath = "m.py"', "http://h:3"),
        ('[server]\npass_through = "http://h:3"\n[models.m]\npath = "http://h:1"', "http://h:3"),
    ],
)
def test_requests_for_no_model_go_to_the_only_server(text: str, server: str | None) -> None:
    assert concluded(text).passes_to == server


OWN = "is this engine's own address, by [server] host and port; requests would come back to it"


@pytest.mark.parametrize(
    ("host", "address", "own"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080", True),
        ("127.0.0.1", "https://127.0.0.1:8080/x", True),
        ("127.0.0.1", "http://localhost:8080", True),
        ("localhost", "http://127.0.0.1:8080", True),
        ("localhost", "http://[::1]:8080", True),
        ("0.0.0.0", "http://127.0.0.1:8080", True),
        ("0.0.0.0", "http://127.9.9.9:8080", True),
        ("::", "http://[::1]:8080", True),
        ("::", "http://127.0.0.1:8080", True),
        ("::1", "http://[0:0:0:0:0:0:0:1]:8080", True),
        ("127.0.0.1", "http://127.0.0.1:8081", False),
        ("127.0.0.1", "http://127.0.0.1", False),
        ("127.0.0.1", "http://127.0.0.2:8080", False),
        ("127.0.0.1", "http://[::1]:8080", False),
        ("0.0.0.0", "http://[::1]:8080", False),
        ("10.0.0.1", "http://127.0.0.1:8080", False),
        ("127.0.0.1", "http://other:8080", False),
        ("0.0.0.0", "http://10.0.0.1:8080", False),
    ],
)
def test_an_engine_is_no_model_server_of_its_own(host: str, address: str, own: bool) -> None:
    text = f'[server]\nhost = "{host}"\n[models.m]\npath = "{address}"'
    if own:
        assert problems(text) == [f"ringbatch.toml: [models.m] path: {address} {OWN}"]
    else:
        concluded(text)


def test_an_address_is_refused_among_several_models_as_a_version_or_for_pass_through() -> None:
    address = "http://127.0.0.1:8080"
    versions = f'[models.m.versions.1]\npath = "{address}"\n[models.m.versions.2]\npath = "m.py"'
    assert problems(versions) == [f"ringbatch.toml: [models.m.versions.1] path: {address} {OWN}"]
    inherited = f'[models.m]\npath = "{address}"\n[models.m.versions.1]\n[models.m.versions.2]'
    assert problems(inherited) == [f"ringbatch.toml: [models.m] path: {address} {OWN}"]
    several = f'[models.m]\npath = ["http://h:1", "{address}"]'
    assert problems(several) == [f"ringbatch.toml: [models.m] path: {address} {OWN}"]
    passed = f'[server]\npass_through = "{address}"\n[models.m]\npath = "m.py"'
    assert problems(passed) == [f"ringbatch.toml: [server] pass_through: {address} {OWN}"]
    concluded(f'[server]\nport = 0\n[models.m]\npath = "{address}"')


def test_headers_are_passed_on_in_any_case() -> None:
    text = '[models.m]\npath = "http://h:1"\nforward_headers = ["X-A", "x-a", "Cookie"]'
    assert concluded(text).models[0].forward_headers == ("x-a", "cookie")
