"""Settings of all tests."""

from hypothesis import settings

# A busy machine is no failure of a property; the tests that are about time say so themselves.
settings.register_profile("agentbench", deadline=None)
settings.load_profile("agentbench")
