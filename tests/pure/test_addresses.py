"""Addresses of other servers in a configuration."""

import pytest

from ringbatch.engine.config.addresses import is_address, is_any_address, is_ray_address


@pytest.mark.parametrize("host", ["http://127.0.0.1", "http://[::1]", "http://models-1.example"])
def test_every_port_that_there_is_may_be_one_of_an_address_and_no_other(host: str) -> None:
    taken = [port for port in range(100_000) if is_address(f"{host}:{port}/v1")]
    assert taken == list(range(1, 1 << 16))


def test_a_port_is_optional_where_the_scheme_has_a_usual_one() -> None:
    assert is_address("http://models.example/v1")
    assert is_any_address("https://models.example")
    assert is_any_address("https://models.example:65535")
    assert not is_any_address("https://models.example:65536")
    assert not is_address("https://models.example")


def test_a_ray_cluster_has_a_port() -> None:
    assert is_ray_address("auto")
    assert is_ray_address("head.example:6379")
    assert not is_ray_address("head.example:66379")
    assert not is_ray_address("head.example")
