"""Who may ask, and how much: host, origin, token and size of requests; headers of responses."""

import dataclasses
import hmac
import ipaddress
import socket
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latentuq.web.problems import respond

COOKIE = "latentuq-token"
MOST_JSON = 4 * 2**20
"""The largest body of a request that is JSON."""
MOST_FILE = 16 * 2**20
"""The largest image that somebody may send."""
MOST_OPEN = 256
"""Requests that are answered at the same time."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src"
    " 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclasses.dataclass(frozen=True)
class Access:
    """Who may ask: the address that the server listens to, and a token beyond this machine."""

    host: str = "127.0.0.1"
    token: str | None = None

    @property
    def names(self) -> set[str]:
        """Names by which browsers may call the server."""
        own = {socket.gethostname().lower(), socket.getfqdn().lower()}
        return {*_LOCAL, self.host.lower()} | (set() if is_local(self.host) else own)


def is_local(host: str) -> bool:
    """Whether an address belongs to this machine alone."""
    return host in _LOCAL or host.startswith("127.")


class Guard:
    """Lets only those requests through that may be answered."""

    def __init__(self, app: ASGIApp, access: Access):
        """Takes what is guarded, and who may ask."""
        self.app = app
        self.access = access
        self.names = access.names
        self.open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or refuses it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        most = MOST_FILE if scope["path"] == "/api/images" else MOST_JSON
        refusal = self._refuse(scope, headers) or _refuse_size(headers, most)
        if self.open >= MOST_OPEN:
            refusal = refusal or respond(503, "Busy: too many requests at once; try again soon.")
        sender = _with_headers(send)
        if refusal is not None:
            await refusal(scope, receive, sender)
            return
        self.open += 1
        try:
            await self.app(scope, _limited(receive, most), sender)
        finally:
            self.open -= 1

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return respond(421, "This server does not answer to this name.")
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
        site = headers.get("sec-fetch-site", "none")
        if foreign or (scope["path"] != "/" and site not in ("none", "same-origin")):
            return respond(403, "Requests from other sites are refused.")
        return None if self.access.token is None else self._ask_for_token(scope, headers)

    def _is_ours(self, host: str) -> bool:
        """Whether a host is one of our names or an address, which no foreign name can become."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True

    def _ask_for_token(self, scope: Scope, headers: Headers) -> Response | None:
        """Takes the token from a header, a cookie, or the address, which then sets the cookie."""
        token = (self.access.token or "").encode()
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and hmac.compare_digest(given.encode("utf-8", "replace"), token):
            response = RedirectResponse("/", 303)
            response.set_cookie(COOKIE, given, httponly=True, samesite="strict")
            return response
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if any(
            hmac.compare_digest(each.encode("utf-8", "replace"), token) for each in (bearer, cookie)
        ):
            return None
        response = respond(401, "Open the address that the server has printed, with its token.")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response


class _TooLarge(HTTPException):
    """Raised while a body is read, which FastAPI passes on as it is."""


def _refuse_size(headers: Headers, most: int) -> Response | None:
    length = headers.get("content-length", "0")
    too_large = not length.isdecimal() or len(length) > 15 or int(length) > most
    return _too_large(most) if too_large else None


def _too_large(most: int) -> Response:
    return respond(413, f"The request is larger than the {most // 2**20} MB that are allowed.")


def _limited(receive: Receive, most: int) -> Receive:
    """Counts what arrives, since not every request says its size."""
    arrived = 0

    async def counted() -> Message:
        nonlocal arrived
        message = await receive()
        arrived += len(message.get("body", b""))
        if arrived > most:
            raise _TooLarge(413)
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sender
