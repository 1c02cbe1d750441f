"""The file beside the history that keeps a second writer out."""

import fcntl
import os
from pathlib import Path

from agentbench_otel.errors import InputError


class HistoryLock:
    """Held by the one process that writes a history; the system releases it when that process dies.

    The file ``<history>.lock`` holds the writer's process id while it writes and is empty after a clean end. It
    is never removed: a second process could then lock a file that a third no longer sees.

    Attributes:
        was_clean: The last writer came to its end; False after a kill, and where no lock file was.
    """

    def __init__(self, file: Path) -> None:
        """Raises:
        InputError: Another process writes the history, or its directory can't be written.
        """
        path = file.resolve()  # two links to one file share one lock
        path = path.with_name(path.name + ".lock")
        is_new = not path.exists()
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(
                f"{file}: can't be written: {path}: {error.strerror}; make its directory writable, "
                "or give another path"
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.was_clean = not is_new and os.fstat(self._descriptor).st_size == 0
            self._note(f"{os.getpid()}\n")
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise InputError(
                f"{file}: process {holder or 'unknown'} writes this history (it holds {path}); "
                "stop it, or give another path"
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise InputError(f"{file}: can't be locked: {path}: {error.strerror}; use a local disk") from None

    def release(self, *, is_clean: bool) -> None:
        """``is_clean``: the history was closed as it should be; it need not be checked at the next start."""
        try:
            if is_clean:
                self._note("")
        finally:
            os.close(self._descriptor)

    def _note(self, text: str) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)
