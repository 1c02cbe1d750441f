"""Frozen values that travel between the rooms: scenarios, chat, spans, the turn's own account, results."""
