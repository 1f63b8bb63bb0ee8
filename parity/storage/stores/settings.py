"""What the environment says of a store, checked before the client has it: a stray character ends it in a panic.

Messages name a variable and what is wrong with it, and never what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from parity.errors import ParityError, StoreError
from parity.storage.stores.url import StoreUrl
from parity.storage.untrusted import read_json

__all__ = ["endpoint_of", "require_settings"]

ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "gs": ("STORAGE_EMULATOR_HOST",)}

ONE_WORD = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables whose values are sent in headers, or signed with."""

GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS"
GOOGLE_KINDS = ("service_account", "authorized_user", "external_account", "gdch_service_account")
"""Types of credentials that Google's own libraries read; the client knows the first two."""


def endpoint_of(url: StoreUrl, environment: Mapping[str, str]) -> str:
    """Return where requests for a store go; empty for the cloud that the URL names.

    Args:
        url: Of the store.
        environment: Variables of the process.

    Raises:
        StoreError: The variable holds no address of a server.
    """
    name = next((name for name in ENDPOINTS[url.scheme] if environment.get(name)), None)
    if name is None:
        return ""
    value = environment[name]
    if url.scheme == "gs" and "://" not in value:
        value = f"http://{value}"
    try:
        parts = urlsplit(value)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or not _is_word(value) or parts.query or parts.fragment:
        raise StoreError(url, f"{name} must be like https://HOST or http://HOST:PORT, and is something else")
    return value


def require_settings(url: StoreUrl, environment: Mapping[str, str]) -> None:
    """Check the variables that give credentials and region.

    Args:
        url: Of the store; its scheme says which variables count.
        environment: Variables of the process.

    Raises:
        StoreError: One of them cannot be what it should be.
    """
    if url.scheme == "gs":
        if environment.get(GOOGLE) and not environment.get("STORAGE_EMULATOR_HOST"):
            _require_google_file(url, Path(environment[GOOGLE]))
        return
    for name in ONE_WORD:
        if not _is_word(environment.get(name, "")):
            raise StoreError(url, f"{name} holds a space, an end of a line or no ASCII; set it to the value alone")
    if empty := [name for name in ONE_WORD[:3] if environment.get(name) == ""]:
        raise StoreError(url, f"{empty[0]} is set to nothing; set it to its value, or remove it")
    key, secret = (bool(environment.get(name)) for name in ONE_WORD[:2])
    if key != secret:
        there, missing = ONE_WORD[:2] if key else reversed(ONE_WORD[:2])
        raise StoreError(url, f"{there} is set and {missing} is not; set both, or neither and AWS_PROFILE")


def _require_google_file(url: StoreUrl, path: Path) -> None:
    if set('{"\n') & set(str(path)):
        raise StoreError(url, f"{GOOGLE} must be the path of a file, and holds something else, perhaps its content")
    if not path.is_file():
        raise StoreError(url, f"{GOOGLE} names a file that is not there: {path}")
    try:
        kind = read_json(path).get("type")
    except (ParityError, OSError):  # what it holds is not repeated
        raise StoreError(url, f"{GOOGLE} names a file that is no readable JSON of credentials: {path}") from None
    if kind not in GOOGLE_KINDS:
        raise StoreError(url, f"{GOOGLE} names a file whose type is none of {', '.join(GOOGLE_KINDS)}: {path}")


def _is_word(value: str) -> bool:
    return value.isascii() and value.isprintable() and " " not in value
