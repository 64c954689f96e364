"""Order-preserving byte strings: the letters that keys and values are written in.

A text is escaped so that it holds no 0x00 and is ended by one: 0x00 -> 01 01, 0x01 -> 01 02. Byte order of the
results is byte order of the texts, a text sorts before its own continuations, and any byte is safe in any place.
"""

from struct import Struct

END = b"\x00"

_SIGN = 1 << 63
_UINT64 = Struct(">Q")
_DOUBLE = Struct(">d")
_MASK = (1 << 64) - 1
_INVERSE = bytes(range(255, -1, -1))


def text(value: bytes) -> bytes:
    """`value` escaped and ended."""
    if b"\x00" in value or b"\x01" in value:
        value = value.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")
    return value + END


def read_text(encoded: bytes, start: int) -> tuple[bytes, int]:
    """The text that begins at `start`, and where the next thing begins. Raises ValueError when it never ends."""
    end = encoded.index(END, start)
    value = encoded[start:end]
    if b"\x01" in value:
        value = value.replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01")
    return value, end + 1


def integer(value: int) -> bytes:
    """A signed 64-bit integer in 8 bytes."""
    return _UINT64.pack(value + _SIGN)


def read_integer(encoded: bytes, start: int) -> tuple[int, int]:
    return _UINT64.unpack_from(encoded, start)[0] - _SIGN, start + 8


def double(value: float) -> bytes:
    """An IEEE double in 8 bytes: -inf < numbers < inf; a NaN sorts before -inf or after inf by its sign bit."""
    bits = _UINT64.unpack(_DOUBLE.pack(value))[0]
    return _UINT64.pack(bits ^ (_MASK if bits >> 63 else _SIGN))


def read_double(encoded: bytes, start: int) -> tuple[float, int]:
    bits = _UINT64.unpack_from(encoded, start)[0]
    bits ^= _SIGN if bits >> 63 else _MASK
    return _DOUBLE.unpack(_UINT64.pack(bits))[0], start + 8


def inverted(encoded: bytes) -> bytes:
    """Every bit turned round: what no other begins with sorts the other way. Its own inverse."""
    return encoded.translate(_INVERSE)


def varint(value: int) -> bytes:
    """An unsigned protocol-buffer varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(encoded: bytes, start: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = encoded[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, start
        shift += 7
