"""JSON over HTTP to Google's services: credentials, retries of calls that may be repeated, and errors in one line.

Whatever calls a service, in this room and others, raises RestError where that fails.

requests with google.auth, not the client libraries: google-cloud-storage takes 0.35 s and 58 MB to import and
google-cloud-aiplatform 2.6 s and 188 MiB, where requests with google.auth takes 0.15 s and 27 MiB (measured 2026-11-20,
google-cloud-storage 3.17.1), and a function pays that at each cold start.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vertexrig.errors import ServiceError
from vertexrig.text import kind_of
from vertexrig.waiting import waiting

# requests and urllib3 are imported by the first call: 130 ms (2026-11-22), and an extra, so that a verb that only might call a
# service works without them.
if TYPE_CHECKING:
    import requests

_RESTART = '. If a local Vertex was there, start it again with `vertexrig local up --detach`, then `eval "$(vertexrig local env)"`'
_LOG = logging.getLogger(__name__)

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
CONNECT_S, READ_S, ANSWER_S = 5.0, 20.0, 20.0
"""Longest wait for a connection, for the next bytes of an answer, and for all of it, seconds."""
CALL_S = CONNECT_S + ANSWER_S + READ_S
"""Longest that a call takes once, seconds: the last bytes may be waited for just before the whole is given up."""
REPEAT_WITHIN_S = 45.0
"""Seconds after the first attempt in which a call that may be repeated is repeated."""
LONGEST_WAIT_S = 5.0
"""Longest wait between two attempts, also where a service asks for more."""
POOL = 64
"""Connections that are kept open; a function that answers more requests at a time opens others for a call each."""
LONGEST_ANSWER = 32 * 1024 * 1024
"""Bytes, far above any answer that is asked for here; it bounds what a wrong server can make this one keep."""
RPC_CODES = {
    1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED", 13: "INTERNAL",
    14: "UNAVAILABLE", 16: "UNAUTHENTICATED",
}  # fmt: skip
"""google.rpc.Code by number (google/rpc/code.proto)."""


class RestError(ServiceError):
    """A call that failed.

    Args:
        message: The service's message, in one line.
        status: Its HTTP status, if it answered.
        outcome_unknown: The call may have taken effect all the same.
        retry_after: Seconds after which the service asks to be called again.
        reason: The service's own word, such as RESOURCE_EXHAUSTED.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        outcome_unknown: bool = False,
        retry_after: float | None = None,
        reason: str = "",
    ) -> None:
        self.outcome_unknown, self.retry_after, self.reason = outcome_unknown, retry_after, reason
        super().__init__(message, status=status)

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status is None or self.status in RETRIED


@dataclass(frozen=True)
class Answer:
    """What a service answered with a status below 300.

    Args:
        data: The JSON, or the bytes if bytes were asked for.
        headers: Header fields, in any case.
    """

    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class Rest:
    """Calls to one service.

    Args:
        url: Its base, without a slash at the end.
        name: What to call it in messages.
        attempts: How often a call that may be repeated is made at most.
        pause: Seconds before the third attempt, doubled for each further one; each has up to as much again, at random.
        most_s: Seconds that one attempt may take, if they are fewer than CONNECT_S and ANSWER_S.
    """

    def __init__(
        self, url: str, name: str, *, attempts: int = 4, pause: float = 0.2, most_s: float | None = None
    ) -> None:
        self.url, self.name, self.attempts, self.most_s = url.rstrip("/"), name, attempts, most_s
        self._pause = pause
        self._lock = threading.Lock()
        self._session: requests.Session | None = None

    @property
    def session(self) -> requests.Session:
        """The session, with credentials unless the service is on this machine."""
        with self._lock:  # the function answers several requests at a time, each in its thread
            if self._session is None:
                self._session = _session(self.url)
            return self._session

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        data: bytes | None = None,
        content_type: str | None = None,
        repeat: bool | None = None,
        raw: bool = False,
    ) -> Answer:
        """Make a call.

        Args:
            path: Below the base; starts with a slash.
            repeat: Whether it may be made again after a failure; by default only GET.
            raw: Return bytes.
        """
        from urllib3.util import Retry

        # POST is not repeated by itself: the first attempt may have taken effect.
        left = self.attempts if (method == "GET" if repeat is None else repeat) else 1
        headers = {"Content-Type": content_type} if content_type else {}
        words = {"params": params, "json": json, "data": data, "headers": headers}
        # The deadline spans all attempts, which urllib3's own loop cannot do; its Retry decides the waits between them.
        until, pause = time.monotonic() + REPEAT_WITHIN_S, self._pause
        backoff = Retry(total=self.attempts, backoff_factor=pause, backoff_jitter=pause, backoff_max=LONGEST_WAIT_S)
        with waiting(f"{self.name} at {urlsplit(self.url).netloc}"):
            while True:
                try:
                    return self._once(method, path, words, raw)
                except RestError as error:
                    left, backoff = left - 1, backoff.increment(method, path)
                    wait = min(max(backoff.get_backoff_time(), error.retry_after or 0.0), LONGEST_WAIT_S)
                    if not left or not error.retryable or time.monotonic() + wait > until:
                        raise
                    with waiting(f"another attempt, because {error}"):
                        time.sleep(wait)

    def find(self, path: str, *, method: str = "GET", **sent: Any) -> Answer | None:
        """Make a call, as `call` does, about something that may not be there: None if the service answers 404."""
        try:
            return self.call(method, path, **sent)
        except RestError as error:
            if error.status == 404:
                return None
            raise

    def pages(self, path: str, key: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, the field `key` of its answers, page by page, each asked for when it is needed."""
        token = ""
        while True:
            data = self.call("GET", path, params={**params, "pageToken": token} if token else params).data
            rows = data.get(key) or []
            if not isinstance(rows, list):
                raise RestError(f"{self.name} answered with {key} as {kind_of(rows)}, where a list belongs", status=502)
            yield from rows
            token = str(data.get("nextPageToken") or "")
            if not token:
                return

    def _once(self, method: str, path: str, words: Mapping[str, Any], raw: bool) -> Answer:
        """Make the call once; `words` are arguments of requests."""
        import requests
        import urllib3

        try:
            with waiting(f"credentials for {self.name}"):
                session = self.session
        except ImportError:  # an extra is missing, which the command line turns into a message
            raise
        except Exception as error:  # google.auth has no common base for what reading credentials may raise
            raise RestError(f"no credentials for {self.name}: {_line(error)}", status=401) from None
        most = self.most_s or CONNECT_S + ANSWER_S
        until = time.monotonic() + most
        try:
            answer = session.request(
                method,
                self.url + path,
                **words,
                timeout=(min(CONNECT_S, most), min(READ_S, most)),
                allow_redirects=False,
                stream=True,
            )
            content = _whole(answer, until)
        except requests.exceptions.ConnectTimeout as error:
            raise RestError(f"{self.name} cannot be reached at {self.url}: {_reason(error)}") from None
        except requests.exceptions.ConnectionError as error:
            # without a connection nothing was sent; cut off in the middle, the call may have taken effect
            sent = not any(isinstance(one, urllib3.exceptions.NewConnectionError) for one in _chain(error))
            text = f"{self.name} cannot be reached at {self.url}: {_reason(error)}"
            raise RestError(text + (_RESTART if is_loopback(self.url) else ""), outcome_unknown=sent) from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, _TooSlowError) as error:
            raise RestError(f"{self.name} did not answer: {_line(error)}", outcome_unknown=True) from None
        except Exception as error:  # by its name: google.auth is imported only where a host takes credentials
            if not type(error).__module__.startswith("google.auth"):
                raise
            raise RestError(f"no credentials for {self.name}: {_line(error)}", status=401) from None
        return self._read(answer, content, raw)

    def _read(self, answer: requests.Response, content: bytes, raw: bool) -> Answer:
        if answer.status_code >= 300:
            raise self._refusal(answer, content)
        if raw:
            return Answer(content, answer.headers)
        try:
            data = json.loads(content) if content else {}
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise RestError(
                f"{self.name} answered with something other than a JSON object", status=502, outcome_unknown=True
            )
        return Answer(data, answer.headers)

    def _refusal(self, answer: requests.Response, content: bytes) -> RestError:
        try:
            error = json.loads(content).get("error", {})
            message, reason = str(error.get("message", "")), str(error.get("status", ""))
        except (ValueError, AttributeError, RecursionError):
            message = reason = ""
        status = answer.status_code
        text = " ".join(message.split()) or f"HTTP {status}"
        # 429 and 4xx are answers to a request that was not carried out; a 5xx may come after it was
        return RestError(
            f"{self.name}: {text}",
            status=status,
            outcome_unknown=status >= 500 or status == 408,
            retry_after=retry_after(answer.headers.get("Retry-After", "")),
            reason=reason,
        )


class _TooSlowError(Exception):
    """An answer that does not come to its end, or is longer than any of ours."""


def _whole(answer: requests.Response, until: float) -> bytes:
    """Return the body. A timeout of requests is for the next bytes only; an answer that drips would hold a claim for ever."""
    parts, size = [], 0
    try:
        # read1 returns what has come; read would wait for 64 KiB and not see the deadline.
        while part := answer.raw.read1(65536, decode_content=True):
            parts.append(part)
            size += len(part)
            if time.monotonic() > until:
                raise _TooSlowError(f"its answer was not whole after {ANSWER_S:g} s")
            if size > LONGEST_ANSWER:
                raise _TooSlowError(f"its answer is longer than {LONGEST_ANSWER} bytes")
    except BaseException:
        answer.close()
        raise
    return b"".join(parts)


def retry_after(text: str) -> float | None:
    """Return seconds of a Retry-After header: a number or a date; None if it is neither."""
    import urllib3

    try:
        return urllib3.util.Retry().parse_retry_after(text)
    except urllib3.exceptions.InvalidHeader:
        return None


def load_client() -> None:
    """Import what the first call would otherwise wait for."""
    import requests  # noqa: F401


def is_loopback(url: str) -> bool:
    """Whether a URL points at this machine."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def takes_credentials(url: str, universe: str = "googleapis.com") -> bool:
    """Whether a token may be sent to a URL: only over https, and only to a host of the credentials' own universe."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" and (host == universe or host.endswith(f".{universe}"))


def _session(url: str) -> requests.Session:
    """Return a session: with default credentials for Google's hosts, anonymous for every other, such as a local Vertex."""
    import requests
    from requests.adapters import HTTPAdapter

    session: requests.Session
    if is_loopback(url):
        session = requests.Session()
        # No proxy of the environment leads to this machine, and no .netrc has a login for it.
        session.trust_env = False
    else:
        session = _signed_in(url) or requests.Session()
    adapter = HTTPAdapter(pool_connections=4, pool_maxsize=POOL)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _signed_in(url: str) -> requests.Session | None:
    """Return a session with the user's credentials; None for a host that must not see them."""
    if urlsplit(url).scheme == "https":
        # 60 ms and 12 MiB (2026-11-22), which no call to a local Vertex needs
        import google.auth
        from google.auth.transport.requests import AuthorizedSession

        credentials, _ = google.auth.default(scopes=[SCOPE])
        # asked for second: a metadata server's credentials ask it for their universe
        if takes_credentials(url) or takes_credentials(url, credentials.universe_domain or "googleapis.com"):
            return AuthorizedSession(credentials, max_refresh_attempts=1)  # type: ignore[no-untyped-call]
    _LOG.warning("%s is not a host of Google's over https: calls to it carry no credentials", urlsplit(url).netloc)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what HTTP clients wrapped in it, from the outside in."""
    # An error may name itself as its context.
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        wrapped = next((one for one in inner.args if isinstance(one, BaseException)), None)
        # urllib3 keeps the cause in args or reason, and Python in __cause__ and __context__.
        inner = wrapped or getattr(inner, "reason", None) or inner.__cause__ or inner.__context__


def _reason(error: BaseException) -> str:
    """Return the operating system's message, which HTTP clients wrap in their own errors; without one, the error's text."""
    return next((one.strerror for one in _chain(error) if isinstance(one, OSError) and one.strerror), _line(error))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
