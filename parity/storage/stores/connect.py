"""Opening a store: obstore with our retries and time limits, the endpoint and the credentials of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from parity.errors import MissingPackageError
from parity.storage.stores.credentials import profile_of, profile_region
from parity.storage.stores.objects import Objects
from parity.storage.stores.problems import translated
from parity.storage.stores.settings import endpoint_of, require_settings
from parity.storage.stores.url import StoreUrl, parse_url

__all__ = ["open_store"]

CONNECT_SECONDS = 10
REQUEST_SECONDS = 120
"""Longest that one request may take with its body: a part has 8 MiB."""

RETRIES = 4
RETRY_SECONDS = 30
"""How often and how long one request is repeated, by obstore, where the answer is 429 or 5xx or there is none."""


def open_store(url: str | StoreUrl, environment: Mapping[str, str] = os.environ) -> Objects:
    """Open the place that a URL names; nothing is asked of the store yet.

    The environment gives credentials, region and endpoint by the usual names (docs/remote.md): those of AWS, with
    AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for other stores that speak S3; GOOGLE_APPLICATION_CREDENTIALS, and
    STORAGE_EMULATOR_HOST for a double of GCS. An endpoint without TLS is taken as it is given.

    Args:
        url: The place.
        environment: The variables.

    Raises:
        RunDirectoryError: It is no URL of a store.
        MissingPackageError: obstore is not installed.
        StoreError: The environment makes no sense.
    """
    place = url if isinstance(url, StoreUrl) else parse_url(url)
    try:
        from obstore.store import GCSStore, S3Store
    except ImportError as error:
        raise MissingPackageError("obstore", "remote", f"{place.scheme}:// needs it") from error
    times = {
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "timeout": timedelta(seconds=REQUEST_SECONDS),
        "allow_http": True,
    }
    retry = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
    given: dict[str, Any] = {"client_options": times, "retry_config": retry}
    require_settings(place, environment)
    endpoint = endpoint_of(place, environment)
    with translated(place, "open"):
        if place.scheme == "s3":
            named = {"endpoint": endpoint, "region": profile_region(environment)}
            given |= {name: value for name, value in named.items() if value}
            if (provider := profile_of(place, environment)) is not None:
                given["credential_provider"] = provider
            return Objects(S3Store(place.bucket, **given), place, endpoint)
        if endpoint:
            config = {"base_url": endpoint}
            given |= {"config": config, "credential_provider": lambda: {"token": "", "expires_at": None}}
        return Objects(GCSStore(place.bucket, **given), place, endpoint)
