"""Content encodings, decoded in bounded steps: a few bytes can stand for gigabytes."""

import zlib
from collections.abc import Iterator
from typing import Protocol

import brotli  # type: ignore[import-untyped]

STEP_BYTES = 65_536


class Decoder(Protocol):
    def decode(self, data: bytes) -> Iterator[bytes]:
        """The decoded bytes of one read, in pieces of about 64 KiB; it can be left early.

        Raises:
            ValueError: The bytes are not in the encoding.
        """
        ...


class _Identity:
    def decode(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), STEP_BYTES):
            yield data[start : start + STEP_BYTES]


class _Zlib:
    """gzip and deflate, with or without the zlib header."""

    def __init__(self, window_bits: int) -> None:
        self._inflate = zlib.decompressobj(window_bits)
        self._may_be_raw = window_bits == _ZLIB_OR_GZIP

    def decode(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._inflate.decompress(data, STEP_BYTES)
        except zlib.error as error:
            if not self._may_be_raw:
                raise ValueError("not what its content-encoding says") from error
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            self._may_be_raw = False
            yield from self.decode(data)
            return
        self._may_be_raw = False
        while piece:
            yield piece
            try:
                piece = self._inflate.decompress(self._inflate.unconsumed_tail, STEP_BYTES)
            except zlib.error as error:
                raise ValueError("not what its content-encoding says") from error


class _Brotli:
    def __init__(self) -> None:
        self._decompress = brotli.Decompressor()

    def decode(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._decompress.process(data, output_buffer_limit=STEP_BYTES)
            while piece:
                yield piece
                piece = b""
                if not self._decompress.can_accept_more_data():
                    piece = self._decompress.process(b"", output_buffer_limit=STEP_BYTES)
        except brotli.error as error:
            raise ValueError("not what its content-encoding says") from error


_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32


def decoder_for(encoding: str) -> Decoder | None:
    """The decoder of a ``content-encoding``, None when it is one that nobody here reads."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return _Identity()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Zlib(_ZLIB_OR_GZIP)
    return _Brotli() if encoding == "br" else None
