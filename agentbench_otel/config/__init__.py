"""YAML text → a frozen, validated `Config`; every problem names file, line and key, and echoes no secret."""

from agentbench_otel.config.loading import load_config
from agentbench_otel.config.model import Benchmark, Config, Target

__all__ = ["Benchmark", "Config", "Target", "load_config"]
