"""Every Python test belongs to one suite of ./run test; one without a mark belongs to the fast suite."""

import pytest

SUITES = ("fast", "slow", "clients", "nightly")


def pytest_ignore_collect(collection_path, config):
    """The client tests import packages that only their own suite installs."""
    if collection_path.name == "clients" and config.option.markexpr != "clients":
        return True
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        if not any(item.get_closest_marker(suite) for suite in SUITES):
            item.add_marker(pytest.mark.fast)
