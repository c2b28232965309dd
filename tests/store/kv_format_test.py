"""The golden files of the KV store, read by a second implementation that follows docs/formats/kv-segment.md alone."""

import pathlib
import struct

GOLDEN = pathlib.Path(__file__).parent / "golden"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def u16(data, at):
    return struct.unpack_from("<H", data, at)[0]


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def digest(first):
    return bytes(first + i for i in range(32))


def test_crc_of_the_check_string():
    assert crc32c(b"123456789") == 0xE3069283


def test_record():
    slot = (GOLDEN / "record.bin").read_bytes()
    assert len(slot) == 4096 and slot[:8] == b"DIKVREC\x01"
    assert u16(slot, 8) == 512 and u16(slot, 10) == 1 | 4
    assert (u32(slot, 12), u64(slot, 16), u64(slot, 24)) == (7, 3, (5 << 40) + 11)
    assert slot[32:64] == digest(1) and slot[64:96] == digest(40) and slot[96:112] == digest(90)[:16]
    assert (u32(slot, 112), u32(slot, 116), u64(slot, 120), u32(slot, 128)) == (12, 240, 1_790_000_000_000, 4300)
    groups = struct.unpack_from("<4I", slot, 132)
    assert groups == (64, 32, 96, 48)
    at = 512
    for size, crc in zip(groups, struct.unpack_from("<4I", slot, 148)):
        assert crc32c(slot[at : at + size]) == crc
        at += size
    assert (u64(slot, 180), u32(slot, 188), u32(slot, 192)) == (2, 9, 0x03020100)
    assert not any(slot[196:508]) and crc32c(slot[:508]) == u32(slot, 508)
    assert not any(slot[at : 4096 - 256])
    assert slot[3840:3848] == slot[24:32] and slot[3848:3856] == slot[32:40] and slot[3856:3860] == slot[508:512]
    assert not any(slot[3860:])


def test_segment_header():
    head = (GOLDEN / "segment_header.bin").read_bytes()
    assert head[:8] == b"DIKVSEG\x01" and (u32(head, 8), u32(head, 12)) == (512, 1)
    assert (u64(head, 16), u64(head, 24)) == (3, 2)
    assert head[32:48] == bytes(range(16)) and head[48:80] == digest(90)
    payload, slot, slots, state, size = u32(head, 80), u32(head, 84), u32(head, 88), u32(head, 92), u64(head, 96)
    assert (payload, slot, state, size) == (240, 4096, 1, 1 << 20)
    round_up = lambda value, unit: -(-value // unit) * unit
    fits = [n for n in range(1, 300) if (1 + n) * slot + round_up(64 + 64 * n, slot) <= size]
    assert slots == max(fits)
    assert (u64(head, 104), u64(head, 112)) == (1_790_000_000_000, (5 << 40) + 2)
    assert crc32c(head[:508]) == u32(head, 508)


def test_footer():
    footer = (GOLDEN / "footer.bin").read_bytes()
    assert footer[:8] == b"DIKVFTR\x01" and u32(footer, 8) == 2
    assert crc32c(footer[64 : 64 + 128]) == u32(footer, 12)
    assert struct.unpack_from("<5Q", footer, 16) == (3, 2, (5 << 40) + 2, (5 << 40) + 11, 1_790_000_900_000)
    assert crc32c(footer[:60]) == u32(footer, 60)
    first, second = footer[64:128], footer[128:192]
    assert first[:32] == digest(1) and second[:32] == digest(2)
    assert (u32(first, 32), u32(first, 36), u64(first, 40)) == (12, 7, 1_790_000_000_000)
    assert (u16(first, 48), u16(first, 50), u32(first, 52), u32(first, 56)) == (5, 9, 9, 4300)
    assert u16(second, 50) == 10 and crc32c(second[:60]) == u32(second, 60)


def test_drive_meta():
    meta = (GOLDEN / "drive_meta.bin").read_bytes()
    assert meta[:8] == b"DIKVDRV\x01" and meta[8:24] == bytes(range(16))
    assert (u64(meta, 24), u64(meta, 32)) == (5, 1_790_000_000_000)
    assert crc32c(meta[:508]) == u32(meta, 508)
