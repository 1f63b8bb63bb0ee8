"""What a store says went wrong, as one line and what to set; nothing of a request is repeated.

An answer of S3 may hold the key's name, the text that was signed, and tokens. Only its code and status are read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from parity.errors import ParityError, StoreConflictError, StoreError, StoreMissingError
from parity.storage.stores.url import StoreUrl

__all__ = ["translated"]

_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>|\(code: ([A-Za-z0-9]{1,60})\)")
"""In an answer; and in what the client says of one that refuses single objects of a request, as deletes of S3 are."""
_STATUS = re.compile(r"status code: (\d{3})")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>")
_TIME = re.compile(r"<ServerTime>([0-9TZ:.+-]{10,40})</ServerTime>")
_INSTANCE = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/latest/api/token")
"""The services that give credentials on a cloud's own machines: asked last, so they fail where there are none."""
_TOKEN_FILE = "Failed to read token file"
_TOKEN_REQUEST = "Error performing token request"
_NO_REQUEST = "builder error"
"""What the client says of credentials that it could not turn into a token, and of requests it could not make."""

WHAT = {"s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", "gs": "GOOGLE_APPLICATION_CREDENTIALS"}

CLOCK = {"RequestTimeTooSkewed", "RequestExpired"}
EXPIRED = {"ExpiredToken", "TokenRefreshRequired", "ExpiredTokenException"}
UNKNOWN_KEY = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthFailure", "InvalidClientTokenId"}
REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
BUSY = {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "OperationAborted"}


@contextmanager
def translated(url: StoreUrl, operation: str) -> Iterator[None]:
    """Raise what fails in the block as a StoreError.

    What was raised is not shown with it: its text has the whole answer of the store.

    Args:
        url: The object, or the prefix.
        operation: What is done, such as `read`.

    Raises:
        StoreMissingError: There is no such object.
        StoreConflictError: A condition did not hold.
        StoreError: Anything else.
    """
    try:
        yield
    except ParityError:
        raise
    except Exception as error:
        problem = _problem(url, operation, error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of the client, which is no Exception of Python
            raise
        problem = StoreError(url, f"the client failed to {operation} it; check {WHAT[url.scheme]} and the endpoint")
    else:
        return
    raise problem from None


def _problem(url: StoreUrl, operation: str, error: Exception) -> StoreError:
    text, kind = str(error), type(error).__name__
    code = found[1] or found[2] if (found := _CODE.search(text)) else ""
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    credentials = WHAT[url.scheme]
    if operation == "open":
        return StoreError(url, f"it cannot be opened as the environment is; check {credentials} and the region")
    if any(one in text for one in _INSTANCE):
        return _denied(url, f"there are no credentials; set {credentials}")
    if _TOKEN_FILE in text:
        return _denied(url, "AWS_WEB_IDENTITY_TOKEN_FILE names a file that cannot be read")
    if _TOKEN_REQUEST in text and 400 <= status < 500:
        return _denied(url, f"these credentials were refused a token ({status}); renew them and set {credentials}")
    if _NO_REQUEST in text:
        return StoreError(url, f"a request to {operation} it cannot be made; check the endpoint and {credentials}")
    if code == "NoSuchBucket":
        return StoreError(url, f"there is no bucket {url.bucket!r}; create it, or name another one")
    if code in CLOCK:
        return _denied(url, f"the clock of this machine differs from the store's by {_skew(text)}; set it (NTP)")
    if code in EXPIRED:
        return _denied(url, f"the token has expired; renew it and set {credentials} and the token anew")
    if code in UNKNOWN_KEY or kind == "UnauthenticatedError":
        return _denied(url, f"the store does not know these credentials; check {credentials}")
    if code in REGION or "incorrectly configured region" in text or status == 301:
        there = f": the bucket is in {found[1]}" if (found := _REGION.search(text)) else ""
        return StoreError(url, f"the region is another one{there}; set AWS_REGION")
    if code == "NotImplemented" or status == 501:
        return StoreError(url, f"the store does not know how to {operation} it as it is asked to (501)")
    if code in BUSY or status in (408, 429) or status >= 500:
        said = f"{status or ''} {code}".strip()
        return StoreError(url, f"the store could not {operation} it now ({said})", transient=True)
    if kind == "AlreadyExistsError" or kind == "PreconditionError" or status in (409, 412):
        return StoreConflictError(url, "another writer changed it first")
    if isinstance(error, FileNotFoundError) or status == 404 or code == "NoSuchKey":
        return StoreMissingError(url, "there is no such object")
    if kind == "PermissionDeniedError" or status == 403 or code == "AccessDenied":
        return _denied(url, f"no permission to {operation}; docs/remote.md lists what these credentials need")
    if status:
        return StoreError(url, f"the store refused to {operation} it ({f'{status} {code}'.strip()})")
    if kind in ("GenericError", "JoinError", "OSError", "TimeoutError", "ConnectionError"):
        return StoreError(url, f"the store cannot be reached to {operation} it", transient=True)
    return StoreError(url, f"{operation} failed ({kind})")


def _skew(text: str) -> str:
    """Return by how much the clocks differ, where the store gives its own time."""
    found = _TIME.search(text)
    try:
        there = datetime.fromisoformat(found[1] if found else "").timestamp()
    except ValueError:
        return "too much"
    return f"{abs(there - time.time()):,.0f} s"


def _denied(url: StoreUrl, problem: str) -> StoreError:
    return StoreError(url, problem, denied=True)
