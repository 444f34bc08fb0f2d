"""Host and port as one text. Pure."""


def authority(host: str, port: int) -> str:
    """Return host and port as in a URL (RFC 3986): an address of IPv6 stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
