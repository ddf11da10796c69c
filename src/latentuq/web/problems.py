"""Errors as JSON problem details (RFC 9457): a sentence, and never a stack trace."""

import http
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from latentuq.core.errors import UserError

RETRY_AFTER = 2
"""Seconds after which a client that was told "busy" may try again."""


class Problem(BaseModel):
    """Why a request was not answered; `detail` is a sentence for people."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class RefusedError(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, detail: str):
        """Takes the HTTP status and the sentence."""
        super().__init__(detail)
        self.status = status
        self.detail = detail


def respond(status: int, detail: str) -> JSONResponse:
    """The response that tells a problem; one that will pass says when to come back."""
    problem = Problem(title=http.HTTPStatus(status).phrase, status=status, detail=detail)
    headers = {"Retry-After": str(RETRY_AFTER)} if status in (429, 503) else {}
    return JSONResponse(problem.model_dump(), status, headers, "application/problem+json")


def explain_errors(app: FastAPI) -> None:
    """Makes an application tell all its errors as problems."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> JSONResponse:
        return respond(error.status, error.detail)

    @app.exception_handler(UserError)
    async def wrong(_: Request, error: UserError) -> JSONResponse:
        return respond(422, str(error))

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> JSONResponse:
        sentences = {
            404: "There is nothing at this address.",
            413: "The request is larger than what is allowed.",
            405: "This address does not take such a request.",
        }
        response = respond(error.status_code, sentences.get(error.status_code, str(error.detail)))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return respond(422, _complaint(error.errors()[0]))

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        logging.getLogger("latentuq.web").error("A request failed.", exc_info=error)
        return respond(500, "Something went wrong in the server, which has logged it.")


def _complaint(error: dict[str, Any]) -> str:
    """The first thing that is wrong with a request, without what the client sent."""
    place = ".".join(str(part) for part in error["loc"] if part != "body")
    message = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{place}: {message}." if place and place.isascii() else f"{message}."
