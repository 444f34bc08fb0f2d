"""How the supervisor tells a frontend where the files with credentials are."""

import argparse
from pathlib import Path

from ringbatch.shm.host.credentials import Credentials

_KEYS = ("tls_certificate", "tls_key", "tls_client_ca", "api_keys")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag for each file; none of them is needed."""
    for key in _KEYS:
        parser.add_argument(f"--{key.replace('_', '-')}", type=Path, metavar="FILE")


def given_credentials(given: argparse.Namespace) -> Credentials:
    """What the flags say."""
    return Credentials(**{key: getattr(given, key) for key in _KEYS})
