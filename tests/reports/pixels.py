"""Reads a PNG of 8-bit RGB or RGBA, so that a test can look at what was drawn."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
Pixel = tuple[int, int, int]


def read(png: bytes) -> list[list[Pixel]]:
    """The rows of a picture, each a list of (red, green, blue)."""
    assert png.startswith(SIGNATURE)
    place, data, width, height, channels = len(SIGNATURE), b"", 0, 0, 0
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        body = png[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
        place += 12 + length
    raw, size = zlib.decompress(data), width * channels
    rows, before = [], bytearray(size)
    for start in range(0, height * (size + 1), size + 1):
        before = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + size]), before, channels)
        rows.append([(before[i], before[i + 1], before[i + 2]) for i in range(0, size, channels)])
    return rows


def _unfiltered(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    for i in range(len(line)):
        left, up, corner = (line[i - step] if i >= step else 0), above[i], (above[i - step] if i >= step else 0)
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + up) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + up) // 2) & 255
        elif kind == 4:
            near = left + up - corner
            line[i] = (line[i] + min((left, up, corner), key=lambda value: abs(near - value))) & 255
    return line


def share(rows: list[list[Pixel]], box: tuple[int, int, int, int], colour: Pixel, within: int = 60) -> float:
    """The part of a box (left, top, right, bottom) that has a colour, more or less."""
    left, top, right, bottom = box
    pixels = [pixel for row in rows[top:bottom] for pixel in row[left:right]]
    like = [pixel for pixel in pixels if all(abs(a - b) <= within for a, b in zip(pixel, colour, strict=True))]
    return len(like) / len(pixels)
