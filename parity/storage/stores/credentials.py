"""Credentials of S3 from a profile, where the environment has none; read from files, kept nowhere.

obstore itself reads the environment, the token files of containers and the services of the clouds' machines. Profiles
(`~/.aws/credentials`) it does not. A profile that is a login or a role needs boto3, which is used if it is installed.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from parity.errors import StoreError
from parity.storage.stores.url import StoreUrl

__all__ = ["profile_of", "profile_region"]

FRESH = timedelta(minutes=5)
"""How long what was read of a profile is used: a token that was renewed there is found soon."""

MOST_SHOWN = 30
"""Letters of the name of a profile in a message; secret keys have 40."""

OTHERS = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def profile_of(url: StoreUrl, environment: Mapping[str, str] = os.environ) -> Callable[[], dict[str, Any]] | None:
    """Return what gives the credentials of the profile, for obstore; None where the environment has its own.

    Args:
        url: What is opened, for messages.
        environment: The variables.

    Raises:
        StoreError: AWS_PROFILE names a profile that is not there, or one that needs boto3.
    """
    named = environment.get("AWS_PROFILE")
    if "AWS_ACCESS_KEY_ID" in environment or (not named and any(name in environment for name in OTHERS)):
        return None
    name = named or "default"
    held = _sections(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials").get(name, {})
    held = {**_sections(environment, "AWS_CONFIG_FILE", "config").get(name, {}), **held}
    if not held and named is None:
        return None
    if not held:
        shown = repr(name) if len(name) <= MOST_SHOWN else "something long"  # perhaps a key
        raise StoreError(url, f"AWS_PROFILE names {shown}, and there is no such profile")
    if "aws_access_key_id" in held and "aws_secret_access_key" in held:
        return lambda: _read(url, environment, name)
    if not {"role_arn", "sso_session", "sso_start_url", "credential_process"} & set(held):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise StoreError(
            url, f"the profile {name!r} is a login or a role: install boto3, or export its keys"
        ) from None
    provider: Any = Boto3CredentialProvider()
    return provider


def profile_region(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the region of the profile, where the environment has none."""
    if "AWS_REGION" in environment or "AWS_DEFAULT_REGION" in environment:
        return None
    name = environment.get("AWS_PROFILE", "default")
    return _sections(environment, "AWS_CONFIG_FILE", "config").get(name, {}).get("region")


def _read(url: StoreUrl, environment: Mapping[str, str], name: str) -> dict[str, Any]:
    held = _sections(environment, "AWS_CONFIG_FILE", "config").get(name, {})
    held |= _sections(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials").get(name, {})
    if "aws_access_key_id" not in held or "aws_secret_access_key" not in held:
        raise StoreError(url, f"the profile {name!r} has no keys any more")
    return {
        "access_key_id": held["aws_access_key_id"],
        "secret_access_key": held["aws_secret_access_key"],
        "token": held.get("aws_session_token"),
        "expires_at": datetime.now(UTC) + FRESH,
    }


def _sections(environment: Mapping[str, str], variable: str, file: str) -> dict[str, dict[str, str]]:
    """Return the profiles of a file by name; nothing where it is not there or cannot be read."""
    path = Path(environment.get(variable) or Path(environment.get("HOME", "~")).expanduser() / ".aws" / file)
    parser = configparser.RawConfigParser(default_section="\0")
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return {}
    return {name.removeprefix("profile ").strip(): dict(parser[name]) for name in parser.sections()}
