"""Detects the container of a file from its first bytes: names and content types cannot be trusted."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, Literal, cast

Container = Literal["wav", "flac", "mp3", "ogg", "mp4", "matroska", "aac"]

# A real file has a tag or two; a long chain of them is an attack on the parser.
_MAX_TAGS = 4
_HEAD_BYTES = 16
# Broadcast recorders put a description of some hundred bytes before the format.
_WAV_HEAD_BYTES = 4096
_MAX_CHUNKS = 8
_MP4_FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
# Recorders that stream write a size near 2 or 4 GiB, or 0, and mean "until the end".
_MAX_MEANT_RIFF_BYTES = 0x7FFF_0000


def sniff_container(file: BinaryIO) -> Container | None:
    """Name the container of `file`, or None if it is none of those accepted; leaves the position at the start."""
    head = _head_after_tags(file)
    file.seek(0)
    if head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "matroska"
    if head[4:8] in _MP4_FIRST_BOXES:
        return "mp4"
    return _sniff_mpeg_frame(head)


def promised_wav_share(file: BinaryIO) -> float:
    """How large the RIFF header says the file is, as a multiple of its size; 1.0 where it makes no promise.

    The demuxer takes the end of the file for the end of the sound, so only this reveals a truncated upload.
    Leaves the position at the start.
    """
    num_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(8)
    file.seek(0)
    if len(head) < 8 or head[:4] != b"RIFF":
        return 1.0
    (promised,) = cast(tuple[int], struct.unpack("<I", head[4:]))
    return (promised + 8) / num_bytes if 0 < promised < _MAX_MEANT_RIFF_BYTES else 1.0


def stated_wav_rate(file: BinaryIO) -> int | None:
    """The samples per second of a RIFF header, as far as there is such a statement; leaves the position at the start.

    The demuxer takes a WAV file without a possible rate for a broken one.
    """
    file.seek(0)
    head = file.read(_WAV_HEAD_BYTES)
    file.seek(0)
    position = 12
    for _ in range(_MAX_CHUNKS):
        name, size = head[position : position + 4], head[position + 4 : position + 8]
        if name == b"fmt " and len(head) >= position + 16:
            return int.from_bytes(head[position + 12 : position + 16], "little")
        # Chunks begin at even positions.
        position += 8 + (int.from_bytes(size, "little") + 1) // 2 * 2
    return None


def _head_after_tags(file: BinaryIO) -> bytes:
    """The first bytes after any ID3v2 tags, which may precede MP3, AAC and FLAC."""
    position = 0
    for _ in range(_MAX_TAGS):
        file.seek(position)
        head = file.read(_HEAD_BYTES)
        if head[:3] != b"ID3" or len(head) < 10:
            return head
        has_footer = bool(head[5] & 0x10)
        # Four bytes of seven bits each, so that a size never looks like the start of an MPEG frame.
        size = sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
        position += 10 + size + (10 if has_footer else 0)
    return b""


def _sniff_mpeg_frame(head: bytes) -> Container | None:
    """Distinguish MP3 from ADTS AAC by the fields after the sync word (ISO 11172-3, 13818-7)."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    layer = head[1] >> 1 & 0b11
    if head[1] & 0xF0 == 0xF0 and layer == 0b00:
        return "aac" if head[2] >> 2 & 0xF < 13 else None
    version = head[1] >> 3 & 0b11
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 0b11
    is_frame = layer == 0b01 and version != 0b01 and bitrate not in (0b0000, 0b1111) and rate != 0b11
    return "mp3" if is_frame else None
