"""Settings of all tests."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A busy machine is no failure of a property; the tests that are about time say so themselves.
settings.register_profile("agentbench", deadline=None)
settings.load_profile("agentbench")


@pytest.fixture
def collector() -> Iterator[None]:
    """Python's garbage collection as it was, after a test that changes it."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
