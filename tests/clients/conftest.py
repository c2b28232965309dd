"""Every test of this folder belongs to ./run test clients: real SDKs and agents against a running server."""

import pathlib

import pytest

import served

FOLDER = pathlib.Path(__file__).parent

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# First the answer to a tool's result, then the call, then what has nothing to do with tools.
REPLIES = [
    {"match": "sunny, 21 C", "reply": "The tool answered.</think>It is sunny in Paris.", "repeat": True},
    {"match": "Weather in Paris", "reply": "I call it.</think>" + served.call("get_weather", city="Paris"), "repeat": True},
    {"match": "Say hello", "reply": "A greeting.</think>Hello there.", "repeat": True},
]


@pytest.hookimpl(tryfirst=True)  # before the one that marks the rest as fast
def pytest_collection_modifyitems(items):
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.clients)


@pytest.fixture(scope="session")
def mini():
    server = served.Server()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def scripted(tmp_path_factory):
    server = served.ScriptedServer(REPLIES, tmp_path_factory.mktemp("scripted"))
    yield server
    assert server.stop() == 0
