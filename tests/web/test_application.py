"""The API as a client uses it, on workers that compute nothing."""

import io
import json
import zipfile

import numpy as np
import pytest

from latentuq.problem.specification import Specification
from latentuq.web.pool import Limits
from web_stub import DIES, HANGS, SHAPE, WRONG, client, serving, solve, wait

EVERY_PIXEL = [[1] * SHAPE[1]] * SHAPE[0]


def problem(response, status, words):
    """Checks that a response tells a problem, and nothing of the inside."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    told = response.json()
    assert told["status"] == status
    assert words in told["detail"]
    assert told["detail"].endswith((".", "again soon."))
    assert "Traceback" not in response.text
    return told


def test_models_come_with_examples(web):
    found = web.get("/api/models").json()
    (model,) = found["models"]
    assert found["default"] == model["name"] == "stub"
    assert (model["height"], model["width"]) == SHAPE
    assert len(model["examples"]) == 3


def test_a_reconstruction_from_request_to_files(web):
    begun = solve(web, mask=EVERY_PIXEL, noise=0.2, seed=3)
    assert begun.status_code == 202
    name = begun.json()["id"]
    with web.stream("GET", f"/api/jobs/{name}/events") as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert [line for line in lines if line.startswith("event")] == [
        "event: stated", "event: found", "event: done",
    ]  # fmt: skip
    answer = json.loads(lines[-1].removeprefix("data: "))
    job = wait(web, name)
    assert job["state"] == "done"
    assert job["answer"] == answer
    assert "--seed 3" in job["command"]
    with zipfile.ZipFile(
        io.BytesIO(web.get(f"/api/jobs/{name}/files/problem.zip").content)
    ) as archive:
        assert sorted(archive.namelist()) == ["image.npy", "mask.npy", "problem.toml"]
    for file in ("report.html", "report.zip", "posterior.nc", "overview.png", "summary.json"):
        response = web.get(f"/api/jobs/{name}/files/{file}")
        assert response.status_code == 200
        assert response.headers["content-disposition"] == f'attachment; filename="latentuq-{file}"'


def test_a_stream_goes_on_where_it_was_lost(web):
    name = solve(web).json()["id"]
    wait(web, name)
    headers = {"Last-Event-ID": "0"}
    with web.stream("GET", f"/api/jobs/{name}/events", headers=headers) as stream:
        events = [line for line in stream.iter_lines() if line.startswith("event")]
    assert events == ["event: found", "event: done"]


def test_samples_never_end_and_can_be_those_of_one_mode(web):
    name = solve(web).json()["id"]
    wait(web, name)
    found = web.get(f"/api/jobs/{name}/samples?first=15&count=10").json()
    assert len(found["images"]) == 10
    again = web.get(f"/api/jobs/{name}/samples?first=35&count=10").json()
    assert again["images"] == found["images"]
    one = web.get(f"/api/jobs/{name}/samples?mode=1").json()
    assert one["total"] == 6
    assert {*one["modes"]} == {1}
    problem(web.get(f"/api/jobs/{name}/samples?mode=7"), 404, "no samples of mode 7")


def test_the_distribution_of_a_pixel_is_split_by_mode(web):
    name = solve(web).json()["id"]
    wait(web, name)
    found = web.get(f"/api/jobs/{name}/pixels/2/3").json()
    shares = np.sum(found["shares"], axis=1)
    np.testing.assert_allclose(shares, [13 / 20, 6 / 20, 1 / 20])
    assert found["edges"][0] <= found["low"] < found["mean"] < found["high"] <= found["edges"][-1]
    problem(web.get(f"/api/jobs/{name}/pixels/6/0"), 404, "6 rows and 8 columns")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"model": "/etc/passwd"}, "The models are stub."),
        ({"example": 3}, "examples 0 to 2, no 3"),
        ({"example": None}, "either the place of an example or the pixels"),
        ({"pixels": [[1.0]]}, "either the place of an example or the pixels"),
        ({"example": None, "pixels": [[1.0]]}, "needs 6 rows of 8 pixels"),
        ({"example": None, "pixels": [[None] * 8] * 6}, "nothing but missing pixels"),
        ({"mask": [[1]]}, "needs 6 rows of 8 pixels"),
        ({"mask": [[2]]}, "mask.0.0: Input should be 0 or 1."),
        ({"noise": -1}, "noise: Input should be greater than or equal to 0."),
        ({"seed": 2**32}, "seed: "),
        ({"file": "/etc/passwd"}, "file: Extra inputs are not permitted."),
    ],
)
def test_what_cannot_be_solved_is_a_sentence(web, request_, words):
    problem(solve(web, **request_), 422, words)


def test_numbers_that_json_does_not_know_are_refused(web):
    content = '{"model": "stub", "example": 0, "noise": NaN}'
    headers = {"content-type": "application/json"}
    response = web.post("/api/solve", content=content, headers=headers)
    problem(response, 422, "noise: Input should be a finite number.")


def test_images_are_read_by_a_worker(web):
    found = web.post("/api/images?model=stub&name=a.png", content=b"some")
    assert np.shape(found.json()["pixels"]) == SHAPE
    bad = web.post("/api/images?model=stub&name=a.png", content=b"bad")
    problem(bad, 422, "Cannot read it.")
    problem(web.post("/api/images?model=stub&name=a.exe", content=b""), 422, "ends in .png")
    problem(web.post("/api/images?model=other&name=a.png", content=b""), 422, "The models are")


def test_a_failure_in_a_worker_is_told(web):
    name = solve(web, seed=WRONG).json()["id"]
    job = wait(web, name)
    assert (job["state"], job["detail"]) == ("failed", "The noise is wrong.")
    problem(web.get(f"/api/jobs/{name}/samples"), 404, "has no result: The noise is wrong.")
    problem(web.get(f"/api/jobs/{name}/files/report.html"), 404, "has no result")


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_job_says_so(web):
    job = wait(web, solve(web, seed=DIES).json()["id"])
    assert job["state"] == "failed"
    assert job["detail"].startswith("The process that computed this has died; it was replaced.")
    assert wait(web, solve(web).json()["id"])["state"] == "done"


def test_a_new_stroke_cancels_the_one_before(web):
    first = solve(web, blur=9).json()["id"]
    second = solve(web, replaces=first).json()["id"]
    assert wait(web, first)["state"] == "cancelled"
    assert wait(web, second)["state"] == "done"
    third = solve(web, blur=9).json()["id"]
    assert web.delete(f"/api/jobs/{third}").status_code == 202
    assert wait(web, third)["detail"] == "This was cancelled."
    problem(web.get(f"/api/jobs/{third}/pixels/0/0"), 404, "This was cancelled.")


@pytest.mark.slow
def test_a_queue_has_an_end_and_a_job_its_time():
    limits = Limits(workers=1, queue=2, seconds=1.0)
    with serving(limits) as (address, _), client(address) as web:
        web.get("/api/models")
        under_way = solve(web, seed=HANGS).json()["id"]
        while web.get(f"/api/jobs/{under_way}").json()["state"] == "queued":
            pass
        waiting = [solve(web).json()["id"] for _ in range(2)]
        refused = solve(web)
        problem(refused, 503, "Busy: too many reconstructions are waiting")
        assert int(refused.headers["retry-after"]) > 0
        job = wait(web, under_way)
        assert job["state"] == "failed"
        assert (
            job["detail"] == "This took more than 1 seconds and was ended: use a smaller problem."
        )
        assert [wait(web, each)["state"] for each in waiting] == ["done", "done"]


@pytest.mark.slow
def test_old_results_are_forgotten_with_a_clear_answer():
    with serving(Limits(workers=1), memory=20_000) as (address, desk), client(address) as web:
        names = []
        for seed in range(12):
            names.append(solve(web, seed=seed).json()["id"])
            wait(web, names[-1])
        desk.store.trim()
        assert sum(job.size for job in desk.store.jobs) <= 20_000
        problem(web.get(f"/api/jobs/{names[0]}"), 410, "was forgotten to make room")
        assert web.get(f"/api/jobs/{names[-1]}").status_code == 200
        problem(web.get("/api/jobs/never"), 404, "There is no job of this name.")


def test_the_description_of_the_api_and_its_page_are_there(web):
    document = web.get("/openapi.json").json()
    assert {*document["paths"]} == {
        "/api/models",
        "/api/images",
        "/api/solve",
        "/api/jobs/{name}",
        "/api/jobs/{name}/events",
        "/api/jobs/{name}/samples",
        "/api/jobs/{name}/pixels/{row}/{column}",
        "/api/jobs/{name}/files/{file}",
    }
    assert "docs.js" in web.get("/api").text
    for place in ("/nowhere", "/static/nowhere.js", "/static/..%2f..%2fpool.py"):
        problem(web.get(place), 404, "There is nothing at this address.")
    problem(web.delete("/api/models"), 405, "does not take such a request")


def test_pages_ask_for_nothing_outside(web):
    page = web.get("/").text
    files = ["main.js", "answer.js", "api.js", "painter.js", "pixels.js", "player.js", "probe.js"]
    for text in (page, *(web.get(f"/static/{each}").text for each in [*files, "style.css"])):
        assert "http" not in text.lower()
    assert "<script>" not in page
    assert " style=" not in page
    assert " onclick" not in page


def test_the_files_state_the_problem_that_was_solved(web, tmp_path):
    mask = np.ones(SHAPE, int)
    mask[:, 2:5] = 0
    name = solve(web, mask=mask.tolist(), blur=0.5, noise=0.25).json()["id"]
    content = web.get(f"/api/jobs/{name}/files/problem.zip").content
    zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path)
    found = Specification.read(tmp_path / "problem.toml")
    assert found.noise == {"std": 0.25}
    assert [each["kind"] for each in found.operators] == ["blur", "mask"]
    assert np.array_equal(np.load(tmp_path / found.operators[1]["mask"]), mask)
