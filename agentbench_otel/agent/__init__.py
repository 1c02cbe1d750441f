"""The agent under test: one turn of model calls, events, tool handlers and follow-ups."""
