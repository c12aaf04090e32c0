"""Screens show local time; in these tests that is UTC."""

import time

import pytest


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same screen on every machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
