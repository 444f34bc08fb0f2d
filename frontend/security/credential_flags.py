"""Flags by which the supervisor passes the paths of credential files to a frontend."""

import argparse
from pathlib import Path

from ringbatch.shm.host.credentials import Credentials

_KEYS = ("tls_certificate", "tls_key", "tls_client_ca", "api_keys")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag for each file; none of them is needed."""
    for key in _KEYS:
        parser.add_argument(f"--{key.replace('_', '-')}", type=Path, metavar="FILE")


def given_credentials(given: argparse.Namespace) -> Credentials:
    """Return the paths in the flags."""
    return Credentials(**{key: getattr(given, key) for key in _KEYS})
