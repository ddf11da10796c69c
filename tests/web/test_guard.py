"""Who may ask, and how much."""

import asyncio
import http.client
from urllib.parse import urlsplit

import pytest

from latentuq.web.guard import COOKIE, MOST_FILE, MOST_JSON, MOST_OPEN, Access, Guard, is_local

TOKEN = "0123456789abcdef"
OURS = Access()


def answer(access=OURS, path="/api/models", body=b"", open_=0, **headers):
    """The status and the headers of what a guarded application that says 200 answers."""
    sent, read = [], []

    async def app(scope, receive, send):
        read.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    path, _, query = path.partition("?")
    pairs = {"host": "localhost:8642"} | {
        name.replace("_", "-"): each for name, each in headers.items()
    }
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), each.encode()) for name, each in pairs.items()],
    }
    guard = Guard(app, access)
    guard.open = open_
    asyncio.run(guard(scope, receive, send))
    found = {name.decode(): each.decode() for name, each in sent[0]["headers"]}
    assert (sent[0]["status"] == 200) == bool(read)
    return sent[0]["status"], found


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9000", 200),
        ("127.0.0.1:8642", 200),
        ("[::1]:8642", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8642", 421),
        ("localhost@evil.example", 421),
        ("", 421),
        ("[", 421),
    ],
)
def test_only_our_own_names_are_answered(host, status):
    assert answer(host=host)[0] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:8642"}, 200),
        ({"origin": "http://localhost:9000"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
    ],
)
def test_other_sites_may_not_ask(headers, status):
    assert answer(**headers)[0] == status


def test_a_link_from_another_site_opens_the_page_alone():
    assert answer(path="/", sec_fetch_site="cross-site")[0] == 200


def test_every_response_carries_its_policy():
    for status, headers in (answer(), answer(host="evil.example")):
        assert status in (200, 421)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/api/solve", MOST_JSON, 200),
        ("/api/solve", MOST_JSON + 1, 413),
        ("/api/images", MOST_FILE, 200),
        ("/api/images", MOST_FILE + 1, 413),
        ("/api/images", "many", 413),
        ("/api/images", "9" * 5000, 413),
    ],
)
def test_what_says_that_it_is_too_large_is_refused_at_once(path, length, status):
    assert answer(path=path, content_length=str(length))[0] == status


def test_more_requests_than_can_be_answered_are_told_busy():
    assert answer(open_=MOST_OPEN - 1)[0] == 200
    status, headers = answer(open_=MOST_OPEN)
    assert status == 503
    assert int(headers["retry-after"]) > 0


def test_beyond_this_machine_a_token_is_asked_for():
    access = Access("0.0.0.0", TOKEN)
    assert answer(access)[0] == 401
    assert answer(access, authorization="Bearer 0123")[0] == 401
    assert answer(access, authorization=f"Bearer {TOKEN}")[0] == 200
    assert answer(access, cookie=f"{COOKIE}={TOKEN}")[0] == 200
    assert answer(access, path=f"/api/models?token={TOKEN}")[0] == 401
    status, headers = answer(access, path=f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=strict" in headers["set-cookie"]
    assert answer(access, path="/?token=é")[0] == 401


def test_what_is_local():
    assert all(map(is_local, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    assert not any(map(is_local, ("0.0.0.0", "::", "192.168.1.2", "example.org")))


def test_a_body_that_does_not_say_its_size_is_counted(stub):
    connection = http.client.HTTPConnection(urlsplit(stub[0]).netloc, timeout=60)
    chunks = (b" " * 2**20 for _ in range(MOST_JSON // 2**20 + 1))
    headers = {"content-type": "application/json"}
    connection.request("POST", "/api/solve", chunks, headers, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 413
    assert b"larger than what is allowed" in response.read()
