"""``python -m agentbench_otel``: the same as the ``agentbench-otel`` command."""

from agentbench_otel.cli import main

if __name__ == "__main__":
    main()
