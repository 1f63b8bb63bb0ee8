"""Object stores: URLs of S3 and GCS, and objects that are put, swapped, read by ranges, listed and deleted.

Needs the extra `remote`, which is imported when a store is opened. Knows nothing of checkpoints.
"""

from parity.storage.stores.asked import ask, require_safe
from parity.storage.stores.cache import cache_of
from parity.storage.stores.connect import open_store
from parity.storage.stores.objects import ObjectEntry, Objects, Version
from parity.storage.stores.probing import ONE_WRITER, Probed, ProbeRow, probe
from parity.storage.stores.transfer import (
    MOST_BYTES_IN_MEMORY,
    Pieces,
    digest_objects,
    download,
    upload,
    upload_range,
)
from parity.storage.stores.url import StoreUrl, is_url, parse_url

__all__ = [
    "MOST_BYTES_IN_MEMORY",
    "ONE_WRITER",
    "ObjectEntry",
    "Objects",
    "Pieces",
    "ProbeRow",
    "Probed",
    "StoreUrl",
    "Version",
    "ask",
    "cache_of",
    "digest_objects",
    "download",
    "is_url",
    "open_store",
    "parse_url",
    "probe",
    "require_safe",
    "upload",
    "upload_range",
]
