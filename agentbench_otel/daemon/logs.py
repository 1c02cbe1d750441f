"""Log lines on stderr: logfmt or JSON, in UTC, one line per record whatever a message holds."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["logfmt", "json"]

_PLAIN = re.compile(r"[^\s\"=\\]+")


class LineFormatter(logging.Formatter):
    """Fields come from ``extra={"fields": {…}}``; those that are None are left out."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        known = {key: value for key, value in fields.items() if value is not None}
        if self._is_json:
            return json.dumps(known, default=str)
        return " ".join(f"{key}={_logfmt(value)}" for key, value in known.items())


def _logfmt(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text)


def log_to_stderr(log_format: LogFormat) -> None:
    """Our records and those of the libraries we use, from INFO and WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("agentbench_otel").setLevel(logging.INFO)
    logging.captureWarnings(True)
