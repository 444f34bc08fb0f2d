"""How the supervisor tells a frontend where the files with credentials are."""

import argparse
from pathlib import Path

from ringbatch.shm.host.credentials import Credentials

_KEYS = ("tls_certificate", "tls_key", "tls_client_ca", "api_keys")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag for each file; none of them is needed."""
    for key in _KEYS:
        parser.add_argument(f"--{key.replace('_', '-')}", type=Path, metavar="FILE")


def add_key_flag(parser: argparse.ArgumentParser) -> None:
    """Add that for the API keys alone, for who serves no clients."""
    parser.add_argument("--api-keys", type=Path, metavar="FILE")


def given_keys(given: argparse.Namespace) -> Credentials:
    """What `add_key_flag` says."""
    return Credentials(api_keys=given.api_keys)


def given_credentials(given: argparse.Namespace) -> Credentials:
    """What the flags say."""
    return Credentials(**{key: getattr(given, key) for key in _KEYS})
