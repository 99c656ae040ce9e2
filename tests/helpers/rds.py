"""A matrix with names, in the bytes that R's saveRDS writes."""

import struct

import numpy as np


def as_rds(values: np.ndarray, rows: list[str], columns: list[str]) -> bytes:
    """A numeric matrix with dimnames as R's saveRDS(m, version = 2) writes it, before compression."""
    integer, real, text, vector, pairs, symbol, char, end = 13, 14, 16, 19, 2, 1, 9, 254

    def pack(*numbers: int) -> bytes:
        return struct.pack(f">{len(numbers)}i", *numbers)

    def string(word: str) -> bytes:
        return pack(char | 1 << 18, len(word)) + word.encode()

    def pair(name: str, value: bytes) -> bytes:
        return pack(pairs | 1 << 10, symbol) + string(name) + value

    def strings(words: list[str]) -> bytes:
        return pack(text, len(words)) + b"".join(map(string, words))

    numbers = values.T.astype(">f8").tobytes()  # R keeps columns together
    names = pack(vector, 2) + strings(rows) + strings(columns)
    attributes = pair("dim", pack(integer, 2, *values.shape)) + pair("dimnames", names) + pack(end)
    return b"X\n" + pack(2, 0x30500, 0x20300, real | 1 << 9, values.size) + numbers + attributes
