"""Text files of other tools, as they are or packed with gzip."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from paceline.base.errors import UserError

GZIP = b"\x1f\x8b"


def read_packed_text(path: Path, what: str) -> tuple[str, str]:
    """Read a file of UTF-8, with or without a byte order mark.

    Args:
        path: Of the file.
        what: What it holds, for the message.

    Returns:
        The text, and the SHA-256 of the file as it is.

    Raises:
        UserError: There is no such file, it is damaged, or it is no text.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(GZIP) else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {what}: {error}",
            where=str(path),
            expected="a text file, as it is or packed with gzip; name its absolute path",
        ) from error
    return text, hashlib.sha256(data).hexdigest()
