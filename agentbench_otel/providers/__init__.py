"""Who answers: an OpenAI-compatible endpoint over HTTP, or the scripted mock."""
