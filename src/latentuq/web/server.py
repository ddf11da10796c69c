"""The server as a program: it takes a port, says where it is, and ends when it is told to."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from latentuq.core.cleaning import cleaning
from latentuq.core.errors import UserError
from latentuq.core.reading import reason
from latentuq.web.application import make_app
from latentuq.web.desk import Settings
from latentuq.web.guard import is_local

_LEAST_TOKEN = 12
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """Tells when it listens, and lets go of open streams when it has to end."""

    def __init__(
        self, config: uvicorn.Config, listening: Callable[[], None], ending: Callable[[], None]
    ):
        super().__init__(config)
        self.listening = listening
        self.ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes interrupts for itself; unlike uvicorn it does not repeat them when it has ended."""
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.started:
            self.loop.call_soon_threadsafe(self.ending)


def serve(settings: Settings, port: int, listening: Callable[[str], None]) -> None:
    """Serves the page until an interrupt.

    Args:
        settings: What is served, and to whom.
        port: The port; 0 takes one that is free.
        listening: Called with the address once the page can be opened.
    """
    access = settings.access
    if not is_local(access.host) and access.token is None:
        raise UserError(
            f"The host {access.host} lets other machines in: give --token, a secret of at least"
            f" {_LEAST_TOKEN} characters that they must know."
        )
    if access.token is not None and (
        len(access.token) < _LEAST_TOKEN or not access.token.isascii() or not access.token.isalnum()
    ):
        raise UserError(
            f"A token has at least {_LEAST_TOKEN} letters and digits, and nothing else."
        )
    with listen(access.host, port) as listener:
        app = make_app(settings)
        name = f"[{access.host}]" if ":" in access.host else access.host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        if access.token is not None:
            address += f"?token={access.token}"
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            lifespan="on",
        )
        pool = app.state.desk.pool
        with cleaning(pool.kill):
            _Server(config, lambda: listening(address), pool.close).run([listener])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or a sentence that says why there is none."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise UserError(f"There is no host {host}: give another with --host.") from None
    # Named as TCP, without which asyncio lets small answers wait for each other.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise UserError(
            f"Port {port} of {host} cannot be used ({reason(error)}): give another with --port."
        ) from None
    return listener
