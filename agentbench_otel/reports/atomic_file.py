"""Files that are there whole or not at all."""

import errno
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from agentbench_otel.errors import InputError


class AtomicFile:
    """A text file written beside its place and renamed when the block is left without an error.

    A link stays a link, a replaced file keeps its mode, and what is no regular file (``/dev/stdout``, a named
    pipe) is written directly.
    """

    def __init__(self, path: Path) -> None:
        """Raises:
        InputError: The place can't be written; said before any work is done.
        """
        self._path = path
        is_special = path.exists() and not path.is_file()
        self._place = path if is_special else path.resolve()  # a pipe has no path of its own
        self._temporary = None if is_special else self._place.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            if self._place.is_dir():
                raise IsADirectoryError(errno.EISDIR, "Is a directory")
            if self._place.is_file() and not os.access(self._place, os.W_OK):
                raise PermissionError(errno.EACCES, "Permission denied")
            self._stream: TextIO = (
                self._place.open("w", encoding="utf-8")
                if self._temporary is None
                else self._temporary.open("x", encoding="utf-8")
            )
        except OSError as error:
            raise self._refusal(error) from None

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except OSError as error:
            raise self._refusal(error) from None

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
                if self._place.exists():
                    shutil.copymode(self._place, self._temporary)
                self._temporary.replace(self._place)
        except OSError as problem:
            if error is None:
                raise self._refusal(problem) from None
        finally:
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)

    def _refusal(self, error: OSError) -> InputError:
        return InputError(f"{self._path}: can't be written: {error.strerror}")
