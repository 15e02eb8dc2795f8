"""Runs over a backend's OpenAI HTTP API. ``docs/contracts/adapters.md`` (openai_compat)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from zope.interface import implementer, provider

from iop import model as m
from iop.document import Document
from iop.errors import Failure
from iop.http import sse
from iop.http.client import Call, Client, Origin, Timers
from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.openai_compat import urls
from iop.node.adapters.openai_compat.assemble import Assembly
from iop.node.adapters.openai_compat.errors import failure_of
from iop.node.adapters.openai_compat.watch import Stream, Whole
from iop.settings import OPENAI_COMPAT_SETTINGS

STREAMED_UPSTREAM: Final = frozenset({"llama_cpp"})
"""Backends that go on generating after a non-streaming client has left; llama.cpp also writes no null content."""

MAX_COLLECTED: Final = 32 << 20
"""Bytes of an answer that is put together here."""

MAX_ERROR: Final = 1 << 20
"""Bytes of an error's body that are read."""

_DROPPED: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        # framing and time are the edge's own; the rest tells of the backend, or speaks for the edge's origin
        b"content-length",
        b"date",
        b"server",
        b"via",
        b"x-powered-by",
        b"location",
        b"alt-svc",
        b"set-cookie",
        b"strict-transport-security",
        b"x-request-id",
        b"retry-after",
    }
)


@implementer(IAdapter)
class OpenAICompatAdapter:
    """One backend."""

    def __init__(self, settings: Mapping[str, Any], environment: Environment) -> None:
        self._base_url = settings["base_url"]
        self._label = settings.get("provider") or ""
        self._stream_upstream = settings.get("stream_upstream") or "auto"
        try:
            origin = Origin.of(self._base_url, settings.get("ca_file") or "")
        except ValueError as error:
            raise Failure("invalid_value", f"base_url: {error}") from None
        self._headers = {
            name.lower().encode("latin-1"): value.encode("latin-1", "replace")
            for name, value in (settings.get("headers") or {}).items()
        }
        self._timers = Timers(
            connect=_seconds(settings, "connect_timeout_ms"),
            first_byte=_seconds(settings, "first_byte_timeout_ms"),
            gap=_seconds(settings, "gap_timeout_ms"),
            total=_seconds(settings, "request_timeout_ms"),
        )
        maximum = settings.get("max_connections") or 1024
        self._client = Client(environment.reactor, origin, max_connections=maximum, max_idle=min(256, maximum))
        self._targets: dict[str, str] = {}

    # ---- IAdapter -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._client.close()

    def run(self, run: Run, sink: Any) -> Deferred[None]:
        request = run.request
        if request.http is None:
            raise Failure("invalid_value", "this adapter runs passthrough requests only")
        body, assembly = request.input, None
        if self._streams_upstream(run):
            body, streamed = _streamed(body)
            assembly = Assembly("" if self._goes_on(run) else None) if streamed else None
        answer = _Answer(sink, assembly, strip_usage=request.metadata.get("openai_strip_usage") == "true")
        answer.call = self._client.request(
            request.http.method,
            self._target(request.http.path),
            self._request_headers(request).items(),
            body,
            answer,
            self._timers,
        )
        sink.attach(answer)
        return answer.done

    def probe(self) -> Deferred[m.Health]:
        asked = self._get("/v1/models")
        asked.addCallbacks(lambda got: m.Health.UP if got[0] < 500 else m.Health.DOWN, lambda _: m.Health.DOWN)
        return asked

    def models(self) -> Deferred[list[str]]:
        return self._get("/v1/models").addCallback(lambda got: model_ids(got[1]) if got[0] == 200 else [])

    def sessions(self) -> list[Mapping[str, Any]]:
        return []

    def terminate_session(self, session_id: str) -> bool:
        return False

    # ---- requests -----------------------------------------------------------------------------------------------

    def _target(self, path: str) -> str:
        target = self._targets.get(path)
        if target is None:
            target = urls.target(self._base_url, path)
            if len(self._targets) < 64:
                self._targets[path] = target
        return target

    def _request_headers(self, request: m.RunRequest) -> dict[bytes, bytes]:
        """The caller's, under the configured ones, under those of this run alone."""
        assert request.http is not None
        headers = {b"content-type": b"application/json", b"accept-encoding": b"identity"}
        for name, value in request.http.headers:
            headers[name.encode("latin-1")] = value.encode("latin-1", "replace")
        headers.update(self._headers)
        for name, value in request.secret_headers:
            headers[name.lower().encode("latin-1")] = value.encode("latin-1", "replace")
        return headers

    def _streams_upstream(self, run: Run) -> bool:
        assert run.request.http is not None
        if self._stream_upstream == "never" or run.request.http.path != "/v1/chat/completions":
            return False
        return self._stream_upstream == "always" or self._goes_on(run)

    def _goes_on(self, run: Run) -> bool:
        return run.type in STREAMED_UPSTREAM or (run.provider or self._label) in STREAMED_UPSTREAM

    def _get(self, path: str) -> Deferred[Any]:
        """Ask for a small document; fires with status and body."""
        answer = _Small()
        timers = Timers(connect=self._timers.connect or 5.0, first_byte=5.0, gap=5.0, total=10.0)
        answer.call = self._client.request("GET", self._target(path), self._headers.items(), b"", answer, timers)
        return answer.done


def _seconds(settings: Mapping[str, Any], key: str) -> float:
    value = settings.get(key)
    return float(OPENAI_COMPAT_SETTINGS["properties"][key]["default"] if value is None else value) / 1000


def _streamed(body: bytes) -> tuple[bytes, bool]:
    """Return a chat request as a streaming one, and whether it was made so here."""
    document = Document.parse(body)
    if document.get("stream"):
        return body, False
    return document.with_raw({"stream": "true", "stream_options": '{"include_usage": true}'}).encode(), True


def model_ids(body: bytes) -> list[str]:
    """Return the ids of a ``/v1/models`` document."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return []
    data = said.get("data") if isinstance(said, dict) else None
    found = [entry.get("id") for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    return [id for id in found if isinstance(id, str) and id]


class _Answer:
    """One run's answer, from the backend's socket to the sink; also what flow control pauses."""

    __slots__ = (
        "_assembly",
        "_collected",
        "_error_headers",
        "_head",
        "_sink",
        "_started",
        "_status",
        "_streaming",
        "_strip",
        "_watch",
        "call",
        "done",
    )

    def __init__(self, sink: Any, assembly: Assembly | None, *, strip_usage: bool) -> None:
        self._sink = sink
        self._assembly = assembly
        self._strip = strip_usage
        self._status = 0
        self._head = m.HttpResponseHead(200)
        self._error_headers: dict[bytes, bytes] = {}
        self._watch: Stream | Whole = Whole()
        self._collected = bytearray()
        self._started = self._streaming = False
        self.call: Call | None = None
        self.done: Deferred[None] = Deferred(self._cancelled)

    # ---- flow control -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if self.call is not None:
            self.call.pause()

    def resume(self) -> None:
        if self.call is not None:
            self.call.resume()

    def _cancelled(self, _: Deferred[None]) -> None:
        if self.call is not None:
            self.call.cancel()

    # ---- iop.http.client.Answer ---------------------------------------------------------------------------------

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        if not 200 <= status < 300:
            self._error_headers = dict(headers)
            return
        named = {value.strip().lower() for n, v in headers if n == b"connection" for value in v.split(b",")}
        kept = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in headers
            if name not in _DROPPED and name not in named and not name.startswith(b"access-control-")
        ]
        self._head = m.HttpResponseHead(status, tuple(kept))
        kind = next((v for n, v in headers if n == b"content-type"), b"").lower()
        if kind.startswith(b"text/event-stream"):
            self._watch = Stream(self._strip and self._assembly is None)
            self._streaming = self._assembly is None

    def block(self, data: bytes) -> None:
        if self.done.called:
            return
        if self._started and self._streaming:  # nearly always
            data = self._watch.feed(data)
            if data:
                self._sink.delta(data)
            if self._watch.failure is not None:
                self._fail(self._watch.failure)
            return
        if not 200 <= self._status < 300:
            self._collected += data
            if len(self._collected) > MAX_ERROR:
                self._refused()
            return
        self._pass(self._watch.feed(data))
        if self._watch.failure is not None:
            self._fail(self._watch.failure)

    def ended(self) -> None:
        if self.done.called:
            return
        if not 200 <= self._status < 300:
            self._refused()
        else:
            self._finish()

    def failed(self, failure: Failure) -> None:
        if self.done.called:
            return
        if isinstance(self._watch, Stream) and self._watch.done:
            self._finish()  # all was said; how the connection ended does not matter
        elif not 200 <= self._status < 300 and self._status:
            self._refused()
        else:
            self._fail(failure)

    # ---- towards the sink ---------------------------------------------------------------------------------------

    def _pass(self, data: bytes) -> None:
        if not data:
            return
        if self._streaming:
            self._say(data)
            return
        if self._assembly is None and self._collected:  # a long document: it begins before its end is known
            self._say(bytes(self._collected))
            self._collected.clear()
        self._collected += data
        if len(self._collected) > MAX_COLLECTED:
            self._fail(Failure("answer_too_large", "the answer is larger than the node may put together"))

    def _say(self, data: bytes) -> None:
        if not self._started:
            self._started = True
            self._sink.start(self._head)
        self._sink.delta(data)

    def _finish(self) -> None:
        watch = self._watch
        self._pass(watch.end())
        if watch.failure is None and self._assembly is not None:
            watch.failure = self._put_together(self._assembly)
        if self.done.called:
            return
        if watch.failure is not None:
            self._fail(watch.failure)
            return
        if self._started:
            self._sink.delta(bytes(self._collected))
            self._sink.complete(watch.finish_reason, watch.usage)
        else:
            self._sink.whole(self._head, bytes(self._collected), watch.finish_reason, watch.usage)
        self._close(None)

    def _put_together(self, assembly: Assembly) -> Failure | None:
        """Make one document of the stream that was collected; return why that cannot be."""
        for block in sse.blocks(bytes(self._collected)):
            data = sse.data_of(block)
            if data is not None and data.strip() != b"[DONE]":
                try:
                    assembly.add(json.loads(data))
                except (ValueError, TypeError, AttributeError, RecursionError):
                    return Failure("upstream_error", "the backend's stream cannot be put together")
        headers = [(n, v) for n, v in self._head.headers if n not in ("content-type", "cache-control")]
        self._head = m.HttpResponseHead(self._status, (("content-type", "application/json"), *headers))
        whole = json.dumps(assembly.document(), separators=(",", ":"), ensure_ascii=False)
        self._collected[:] = whole.encode("utf-8", "surrogatepass")
        return None

    def _refused(self) -> None:
        self._fail(failure_of(self._status, self._error_headers, bytes(self._collected)))

    def _fail(self, failure: Failure) -> None:
        self._sink.fail(failure, self._watch.usage)
        self._close(self.call)

    def _close(self, call: Call | None) -> None:
        if call is not None:
            call.cancel()
        self.call = None
        if not self.done.called:
            self.done.callback(None)


class _Small:
    """A small answer, collected."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self._status = 0
        self._body = bytearray()
        self.done: Deferred[tuple[int, bytes]] = Deferred(lambda _: self.call.cancel() if self.call else None)

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status

    def block(self, data: bytes) -> None:
        if len(self._body) < 4 << 20:
            self._body += data

    def ended(self) -> None:
        self.done.callback((self._status, bytes(self._body)))

    def failed(self, failure: Failure) -> None:
        self.done.errback(failure)


@provider(IAdapterFactory)
class factory:
    """Finds itself by ``type: openai_compat``."""

    name = "openai_compat"
    title = "Servers that speak the OpenAI HTTP API"
    settings_schema = OPENAI_COMPAT_SETTINGS
    capabilities: Mapping[str, Any] = {
        "modes": {m.Mode.PASSTHROUGH},
        "endpoints": (),
        "sessions": False,
        "embeddings": False,
    }

    @staticmethod
    def make(settings: Mapping[str, Any], environment: Environment) -> OpenAICompatAdapter:
        """Return an adapter; :raises Failure: when the settings cannot work."""
        return OpenAICompatAdapter(settings, environment)
