"""Files that are there whole or not at all."""

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from agentbench_otel.errors import InputError


class AtomicFile:
    """A text file written beside its place and renamed when the block is left without an error.

    What is no regular file (``/dev/stdout``, a named pipe) is written directly.
    """

    def __init__(self, path: Path) -> None:
        """Raises:
        InputError: The place can't be written; said before any work is done.
        """
        self._path = path
        is_special = path.exists() and not path.is_file()
        self._temporary = None if is_special else path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            if path.is_dir():
                raise IsADirectoryError(0, "Is a directory")
            if path.is_file() and not os.access(path, os.W_OK):
                raise PermissionError(0, "Permission denied")
            self._stream: TextIO = (
                path.open("w", encoding="utf-8")
                if self._temporary is None
                else self._temporary.open("x", encoding="utf-8")
            )
        except OSError as error:
            raise InputError(f"{path}: can't be written: {error.strerror}") from None

    def write(self, text: str) -> None:
        self._stream.write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._stream.close()
            if self._temporary is not None and error is None:
                self._temporary.replace(self._path)
        except OSError as problem:
            raise InputError(f"{self._path}: can't be written: {problem.strerror}") from None
        finally:
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)
