"""Serve one GGUF model with llama.cpp until SIGTERM or the end of stdin.

Runs in the venv that ``servers.py`` makes, not in ours.

usage: llama_server.py MODEL.gguf TEMPLATE.jinja ALIAS
"""

import signal
import sys
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found]  # installed only where this script runs


def main(model_path: str, template_path: str, alias: str) -> None:
    params = xllamacpp.CommonParams()
    params.hostname = "127.0.0.1"
    params.port = 0
    params.model.path = model_path
    params.model_alias = alias
    params.use_jinja = True
    params.chat_template = Path(template_path).read_text(encoding="utf-8")
    # 4,096 tokens for each of two slots, so that two requests stream at the same time and a third one queues.
    params.n_ctx = 8192
    params.n_parallel = 2
    # More threads are slower on two cores: the client under test takes its share of them.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.webui = False
    params.endpoint_metrics = True

    server = xllamacpp.Server(params)
    # Only now: the server sets handlers of its own, which end its loop and leave the process alive.
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: sys.exit())
    sys.stdout.write(f"{alias} server listening on {server.listening_address}\n")
    sys.stdout.flush()
    # Ends when the process that started us has gone, however it ended.
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
