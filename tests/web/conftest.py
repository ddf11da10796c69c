"""One server whose workers compute nothing, for all tests of a process."""

import pytest

from web_stub import client, serving


@pytest.fixture(scope="session")
def stub():
    with serving() as (address, desk):
        yield address, desk


@pytest.fixture(scope="session")
def web(stub):
    with client(stub[0]) as web:
        yield web
