"""README's engine, which several pages go on with."""

from collections.abc import Iterator

import pytest
from documents.commands import serving, write
from documents.pages import README, example
from serve.server import Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """README's server, with a control address and a Unix socket as two pages give it."""
    folder = tmp_path_factory.mktemp("readme")
    write(folder, "model.py", example(README, "model.py"))
    more = ("--control-port", "0", "--unix-socket", str(folder / "prod.sock"))
    with serving(folder, example(README, "serve"), *more) as server:
        yield server
