"""Sessions of pytest within tests: with this plugin and xdist alone."""

import pytest


@pytest.fixture(autouse=True)
def few_plugins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out plugins that every inner session would load anew: hypothesis takes a second."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # it empties the variable first
        monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:benchmark -p no:anyio")
