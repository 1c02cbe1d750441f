"""What the daemon remembers: results, spans and cycles in SQLite."""
