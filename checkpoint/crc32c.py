"""The checksum CRC-32C, at the speed of memory. The plain loop over bytes would take ten minutes for 6 GB.

A message is read as a polynomial over GF(2), with its first bit at the highest power of x. The checksum is the
remainder modulo P = x^32 + x^28 + ... + 1. A table of the remainders of all bytes advances one byte at a time, which
is about 10 MB/s in Python. But P divides

    x^6777 + x^484 + x^100 + 1

(found by search: most multiples of P with four terms are longer, or their terms are less far apart). So modulo P,
x^6777 = x^484 + x^100 + 1. Any bit may be replaced by three bits that are 6777 - 484, 6777 - 100 and 6777 places
further right. Squaring keeps this true, because (a + b)^2 = a^2 + b^2 over GF(2). Three squarings turn bits into
bytes, and k more turn bytes into blocks of 2^k bytes. So the front of a message is folded into the rest of it by three
XORs of long arrays, which NumPy does at the speed of memory. The table only has to do the last 6777 bytes.
"""

import numpy as np

POLYNOMIAL = 0x82F63B78  # P without x^32; the lowest power of x is the highest bit
FAR, SHIFTS = 6777, (6777 - 484, 6777 - 100, 6777)
UNITS = (64, 8, 1)  # bytes: wide steps while the message is long
PIECE = 1 << 22  # bytes that are folded at a time, so that they stay in the CPU's cache


def _table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    return table.tolist()


TABLE = _table()


def crc32c(data):
    """The CRC-32C (Castagnoli) of bytes or of a contiguous array, as an int (RFC 3720, appendix B.4)."""
    data = np.frombuffer(data, np.uint8)
    register = 0xFFFFFFFF
    if len(data) > FAR:
        data, register = _fold_all(data), 0
    for byte in data.tobytes():
        register = TABLE[(register ^ byte) & 255] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def _fold_all(data):
    """uint8 [n] -> uint8 [FAR] that has the same remainder when the register starts at 0 instead of all ones."""
    rest = data[:0]
    for start in range(0, len(data), PIECE):
        rest = np.concatenate([rest, data[start : start + PIECE]])  # a copy, because folding overwrites it
        if start == 0:
            rest[:4] ^= 255  # a register of all ones is the same as flipping the first 32 bits
        for unit in UNITS:
            rest = _fold(rest, unit)
    return rest


def _fold(data, unit):
    """Shorten uint8 [n] to FAR * unit bytes that have the same remainder. Overwrites data."""
    end = len(data) - FAR * unit  # how many bytes have to go
    step = min(SHIFTS) * unit  # bytes that can move at once, without landing on bytes that are still to move
    for start in range(0, end, step):
        front = data[start : min(start + step, end)]
        for shift in SHIFTS:
            data[start + shift * unit :][: len(front)] ^= front
    return data[max(end, 0) :]


def mask(crc):
    """A CRC-32C in the form in which LevelDB and TensorFlow store it: rotated, and a constant added."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def unmask(masked):
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF
