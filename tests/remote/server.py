"""An object store in memory that speaks S3 and the XML API of GCS, and in which one fault can be planted.

It signs and checks nothing. Faults of its own kind are methods that a subclass overrides (`tests/remote/mutants.py`);
faults of the network come from `Server.trouble`, which is asked before each request.
"""

from __future__ import annotations

import hashlib
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["Fault", "Held", "Memory", "Refusal", "Request", "Server", "every"]


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, more: str = "", headers: dict[str, str] | None = None) -> None:
        self.status, self.code, self.more, self.headers = status, code, more, headers or {}
        super().__init__(code)


@dataclass(frozen=True)
class Held:
    """An object as it is held."""

    data: bytes
    etag: str
    generation: int
    modified: float


@dataclass(frozen=True)
class Request:
    """One request, for faults."""

    method: str
    key: str
    query: dict[str, str]
    number: int
    user: str = ""
    """Of S3, the access key that signed it."""


Fault = str
"""`500`, `503`, `429`: that status. `cut`: the connection ends in the middle of the answer, after the request was
carried out. `slow`: `Server.late` seconds late. `lost`: the request is carried out and no answer comes. `silent`: it
is not, and the connection stays open until the client gives up. `torn`: half of what comes is read, none kept."""

MOST_SILENT = 5.0
"""Seconds after which a connection is closed that no client has closed."""


def every(count: int, fault: Fault, *, from_then_on: bool = False) -> Callable[[Request], Fault | None]:
    """Return what fails each count-th request, or every one from the count-th on."""
    return lambda request: (
        fault if (request.number >= count if from_then_on else request.number % count == 0) else None
    )


@dataclass
class Memory:
    """What the store holds and does: the honest one, which mutants change in one place."""

    buckets: dict[str, dict[str, Held]] = field(default_factory=lambda: {"bucket": {}})
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)
    generation: int = 0

    def __post_init__(self) -> None:
        """Begin; mutants that remember something begin here."""

    def now(self) -> float:
        return time.time()

    def etag(self, data: bytes) -> str:
        return f'"{hashlib.md5(data).hexdigest()}"'

    def bucket(self, name: str) -> dict[str, Held]:
        if name not in self.buckets:
            raise Refusal(404, "NoSuchBucket")
        return self.buckets[name]

    def write(self, bucket: str, key: str, data: bytes) -> Held:
        self.generation += 1
        held = Held(data, self.etag(data), self.generation, self.now())
        self.bucket(bucket)[key] = held
        return held

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        with self.lock:
            self.check(self.bucket(bucket).get(key), asked)
            return self.write(bucket, key, data)

    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        """Raise Refusal unless the conditions of a put hold."""
        generation = asked.get("x-goog-if-generation-match")
        if generation is not None and int(generation) != (held.generation if held else 0):
            raise Refusal(412, "PreconditionFailed")
        if asked.get("if-none-match") == "*" and held is not None:
            raise Refusal(412, "PreconditionFailed")
        if "if-match" in asked:
            if held is None:
                raise Refusal(404, "NoSuchKey")
            if held.etag != asked["if-match"]:
                raise Refusal(412, "PreconditionFailed")

    def get(self, bucket: str, key: str) -> Held:
        with self.lock:
            held = self.bucket(bucket).get(key)
        if held is None:
            raise Refusal(404, "NoSuchKey")
        return held

    def said(self, held: Held, method: str) -> Held:
        """Return an object as it is answered to a GET or HEAD."""
        return held

    def part_of(self, data: bytes, start: int, end: int) -> bytes:
        return data[start:end]

    def delete(self, bucket: str, key: str) -> None:
        with self.lock:
            self.bucket(bucket).pop(key, None)

    def listing(self, bucket: str) -> dict[str, Held]:
        with self.lock:
            return dict(sorted(self.bucket(bucket).items()))

    def begin(self, bucket: str, key: str) -> str:
        with self.lock:
            self.bucket(bucket)
            self.generation += 1
            name = f"upload-{self.generation}"
            self.uploads[name] = {}
        return name

    def add_part(self, bucket: str, key: str, upload: str, number: int, data: bytes) -> str:
        with self.lock:
            if upload not in self.uploads:
                raise Refusal(404, "NoSuchUpload")
            self.uploads[upload][number] = data
        return self.etag(data)

    def complete(self, bucket: str, key: str, upload: str) -> Held:
        with self.lock:
            if upload not in self.uploads:
                raise Refusal(404, "NoSuchUpload")
            parts = self.uploads.pop(upload)
            return self.write(bucket, key, self.joined(parts))

    def joined(self, parts: dict[int, bytes]) -> bytes:
        return b"".join(parts[number] for number in sorted(parts))

    def abort(self, upload: str) -> None:
        with self.lock:
            self.uploads.pop(upload, None)


class Server:
    """A store on a port of the loopback interface; a context manager."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()
        self.trouble: Callable[[Request], Fault | None] = lambda request: None
        self.refusal: Refusal | None = None
        """Given to every request: no permission, an expired token."""
        self.judge: Callable[[Mapping[str, str]], Refusal | None] = lambda headers: None
        """Returns what a request with these headers is refused by, as S3 refuses by what was signed."""
        self.requests: list[Request] = []
        self.late = 1.0
        self.port = 0
        self._http: _Http | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def objects(self) -> dict[str, bytes]:
        """Return what is in the bucket `bucket`."""
        with self.memory.lock:
            return {key: held.data for key, held in self.memory.buckets["bucket"].items()}

    def __enter__(self) -> Server:
        self.start()
        return self

    def start(self) -> None:
        """Listen, on the port of before where there was one."""
        self._http = _Http(("127.0.0.1", self.port), _Handler)
        self._http.store = self
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Be gone: connections are closed and refused."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            for one in list(self._http.open):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._http = None

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    store: Server
    open: set[socket.socket]

    def __init__(self, *given: Any) -> None:
        self.open = set()
        super().__init__(*given)

    def get_request(self) -> Any:
        found = super().get_request()
        self.open.add(found[0])
        return found

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http
    disable_nagle_algorithm = True

    def log_message(self, *given: Any) -> None:
        pass

    def do_any(self) -> None:
        store = self.server.store
        size = int(self.headers.get("content-length") or 0)
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        with store.memory.lock:
            signed = re.search(r"Credential=([^/]+)/", self.headers.get("authorization") or "")
            request = Request(self.command, key, query, len(store.requests) + 1, signed[1] if signed else "")
            store.requests.append(request)
        fault = store.trouble(request)
        body = self.rfile.read(size // 2 if fault == "torn" else size)
        if fault == "slow":
            time.sleep(store.late)
        if fault in ("silent", "torn"):
            self.connection.settimeout(MOST_SILENT)
            with suppress(OSError):
                _ = fault == "silent" and self.connection.recv(1)  # returns when the client closes
            self.close_connection = True
            self.connection.close()
            return
        try:
            if fault and fault.isdigit():
                raise Refusal(int(fault), "SlowDown" if fault != "500" else "InternalError")
            if (refusal := store.refusal or store.judge(self.headers)) is not None:
                raise refusal
            status, headers, answer = self.answer(store.memory, bucket, key, query, body)
        except Refusal as error:
            answer = f"<?xml version='1.0'?><Error><Code>{error.code}</Code>{error.more}</Error>".encode()
            status, headers = error.status, {"content-type": "application/xml", **error.headers}
        if fault == "lost":
            self.close_connection = True
            self.connection.close()
            return
        length = int(headers.pop("length", len(answer)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "cut":
            self.wfile.write(answer[: len(answer) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any

    def answer(
        self, memory: Memory, bucket: str, key: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        asked = {name.lower(): value for name, value in self.headers.items()}
        if self.command == "PUT" and not key:
            memory.buckets.setdefault(bucket, {})
            return 200, {}, b""
        if self.command == "PUT" and "partNumber" in query:
            tag = memory.add_part(bucket, key, query["uploadId"], int(query["partNumber"]), body)
            return 200, {"etag": tag}, b""
        if self.command == "PUT":
            return 200, _headers(memory.put(bucket, key, body, asked)), b""
        if self.command == "POST" and "uploads" in query:
            name = memory.begin(bucket, key)
            return (
                200,
                {},
                f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode(),
            )
        if self.command == "POST" and "uploadId" in query:
            held = memory.complete(bucket, key, query["uploadId"])
            text = f"<CompleteMultipartUploadResult><ETag>{escape(held.etag)}</ETag></CompleteMultipartUploadResult>"
            return 200, _headers(held), text.encode()
        if self.command == "POST" and "delete" in query:
            keys = [unescape(one) for one in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            done = "".join(_deleted(memory, bucket, one) for one in keys)
            return 200, {}, f"<DeleteResult>{done}</DeleteResult>".encode()
        if self.command == "DELETE" and "uploadId" in query:
            memory.abort(query["uploadId"])
            return 204, {}, b""
        if self.command == "DELETE":
            memory.delete(bucket, key)
            return 204, {}, b""
        if not key:
            return self.listed(memory, bucket, query)
        held = memory.said(memory.get(bucket, key), self.command)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.get("range", ""))
        if found is None:
            return 200, {**_headers(held), **self.length_of(memory, held)}, held.data
        start, end = int(found[1]), min(int(found[2] or len(held.data) - 1) + 1, len(held.data))
        if start >= len(held.data):
            raise Refusal(416, "InvalidRange")
        piece = memory.part_of(held.data, start, end)
        return 206, {**_headers(held), "content-range": f"bytes {start}-{end - 1}/{len(held.data)}"}, piece

    def length_of(self, memory: Memory, held: Held) -> dict[str, str]:
        """Return what HEAD says of the length, where a mutant says something else."""
        said = getattr(memory, "said_length", None)
        return {"length": str(said(held))} if said is not None and self.command == "HEAD" else {}

    def listed(self, memory: Memory, bucket: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(int(query.get("max-keys", 1000)), 1000)
        rows: list[str] = []
        common: dict[str, None] = {}
        last, more = "", False
        for key, held in memory.listing(bucket).items():
            if not key.startswith(prefix) or key <= after:
                continue
            if len(rows) + len(common) == most:
                more = True
                break
            last = key
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                common[prefix + rest.partition(delimiter)[0] + delimiter] = None
                continue
            when = (
                time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(held.modified))
                + f".{int(held.modified % 1 * 1000):03d}Z"
            )
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified><ETag>{escape(held.etag)}</ETag>"
                f"<Size>{len(held.data)}</Size></Contents>"
            )
        text = "".join(rows) + "".join(
            f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in common
        )
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
        head = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        return 200, {"content-type": "application/xml"}, f"<ListBucketResult>{head}{text}</ListBucketResult>".encode()


def _deleted(memory: Memory, bucket: str, key: str) -> str:
    """Delete one of the objects of a request; S3 says in its answer, and not by its status, which were refused."""
    try:
        memory.delete(bucket, key)
    except Refusal as error:
        said = f"<Code>{error.code}</Code><Message>no, AKIASECRETNAME</Message>"
        return f"<Error><Key>{escape(key)}</Key>{said}</Error>"
    return f"<Deleted><Key>{escape(key)}</Key></Deleted>"


def _headers(held: Held) -> dict[str, str]:
    return {
        "etag": held.etag,
        "last-modified": formatdate(held.modified, usegmt=True),
        "x-goog-generation": str(held.generation),
        "accept-ranges": "bytes",
    }
