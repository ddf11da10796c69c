"""Many clients at once, many requests one after another, and whatever a client may think of."""

import asyncio
import ctypes
import gc
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings, strategies

from latentuq.web.pool import Limits
from web_stub import SHAPE, client, serving, solve, wait

CLIENTS, REQUESTS = 200, 2000
# Growth of memory between the two halves of all requests, which is noise.
MOST_GROWTH = 8 * 2**20


@pytest.mark.slow
def test_of_many_clients_every_one_is_answered_or_told_busy(stub):
    async def one(web, seed):
        response = await web.post(
            "/api/solve", json={"model": "stub", "example": 0, "seed": seed, "blur": 0.5}
        )
        if response.status_code == 503:
            assert int(response.headers["retry-after"]) > 0
            return "busy"
        name = response.json()["id"]
        async with web.stream("GET", f"/api/jobs/{name}/events") as stream:
            events = [line async for line in stream.aiter_lines() if line.startswith("event")]
        return events[-1]

    async def all_at_once():
        limits = httpx.Limits(max_connections=CLIENTS)
        async with httpx.AsyncClient(base_url=stub[0], timeout=60, limits=limits) as web:
            await web.get("/api/models")
            return await asyncio.gather(*(one(web, seed) for seed in range(CLIENTS)))

    told = asyncio.run(all_at_once())
    assert len(told) == CLIENTS
    assert {*told} == {"event: done", "busy"}
    assert told.count("event: done") > 20


@pytest.mark.slow
def test_memory_stays_flat_over_many_requests():
    def resident():
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # The C library keeps freed memory until told.
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def ask(web, number):
        name = solve(web, seed=number).json()["id"]
        wait(web, name)
        web.get(f"/api/jobs/{name}/samples")
        web.get(f"/api/jobs/{name}/pixels/1/1")
        web.post("/api/images?model=stub&name=a.png", content=bytes(100_000))
        web.get(f"/api/jobs/{name}/files/report.zip")
        web.post("/api/solve", content=b"{")

    rounds = REQUESTS // 8
    with serving(Limits(workers=1), memory=2**20) as (address, desk), client(address) as web:
        for number in range(rounds // 2):
            ask(web, number)
        before = resident()
        for number in range(rounds // 2):
            ask(web, number)
        growth = resident() - before
        assert growth < MOST_GROWTH
        assert sum(job.size for job in desk.store.jobs) <= 2**20


OPERATIONS = [
    ("/api/models", "GET"),
    ("/api/images", "POST"),
    ("/api/solve", "POST"),
    ("/api/jobs/{name}", "GET"),
    ("/api/jobs/{name}", "DELETE"),
    ("/api/jobs/{name}/events", "GET"),
    ("/api/jobs/{name}/samples", "GET"),
    ("/api/jobs/{name}/pixels/{row}/{column}", "GET"),
    ("/api/jobs/{name}/files/{file}", "GET"),
]


@pytest.fixture(scope="module")
def described(stub, web):
    return schemathesis.openapi.from_dict(web.get("/openapi.json").json()), stub[0]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_breaks_the_server(described, web, path, method):
    schema, address = described
    known = solve(web).json()["id"]
    wait(web, known)

    @settings(
        max_examples=100,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(case=schema[path][method].as_strategy(), is_known=strategies.booleans())
    def ask(case, is_known):
        if "{name}" in path and is_known:
            case.path_parameters["name"] = known
        response = case.call(base_url=address, timeout=30)
        assert response.status_code < 500 or response.status_code == 503, case.as_curl_command()
        assert b"Traceback" not in response.content

    ask()


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"", b"null", b'{"model": "\\ud800"}'],
    ids=["lists", "objects", "bytes", "nothing", "null", "surrogate"],
)
def test_hostile_bodies_are_problems(web, body):
    response = web.post("/api/solve", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == "application/problem+json"


def test_a_mask_of_another_shape_than_it_says(web):
    mask = [[1] * SHAPE[1]] * (SHAPE[0] - 1) + [[1]]
    assert solve(web, mask=mask).status_code == 422
