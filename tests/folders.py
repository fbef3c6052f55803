"""Helpers that read, damage and forge the files of stored indexes without the library."""

import base64
import json
import zlib
from pathlib import Path

import numpy as np

BLOCK = 2**20
DTYPES = {"I64": "<i8", "U64": "<u8", "I32": "<i4", "F32": "<f4", "F64": "<f8", "U8": "|u1", "U16": "<u2"}
KINDS = {np.dtype(text): kind for kind, text in DTYPES.items()}


def files_of(path):
    """Return the names of all files in an index, relative to it, without the lock file."""
    return sorted(
        str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file() and file.name != "lock"
    )


def size_of(path):
    return sum((Path(path) / name).stat().st_size for name in files_of(path))


def newest(path):
    """Return the path of the newest manifest."""
    return max((Path(path) / "versions").glob("*.json"))


def read_manifest(path):
    return json.loads(newest(path).read_bytes())


def write_manifest(path, record):
    """Replace the newest manifest with this record and a valid checksum."""
    record = {name: value for name, value in record.items() if name != "checksum"}
    write_manifest_text(path, json.dumps(record).encode())


def write_manifest_text(path, text):
    body = text[1:]
    newest(path).write_bytes(b'{"checksum":"%08x",' % zlib.crc32(body) + body)


def segment_paths(path):
    """Return the files of the segments, sorted; their folder also holds files of other tables."""
    names = (record["file"] for record in read_manifest(path)["segments"])
    return sorted(Path(path) / "segments" / f"{name}.safetensors" for name in names)


def unpack(content):
    """Return the columns of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    columns = {}
    for name, tensor in header.items():
        start, stop = (8 + size + offset for offset in tensor["data_offsets"])
        columns[name] = np.frombuffer(content[start:stop], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    return columns


def pack(columns, *, header_change=None, block=BLOCK):
    """Return a safetensors file of columns with valid checksums, and the CRC-32 of its header."""
    header, sums, end = {}, {}, 0
    for name, array in columns.items():
        raw = array.tobytes()
        header[name] = {"dtype": KINDS[array.dtype], "shape": list(array.shape), "data_offsets": [end, end + len(raw)]}
        end += len(raw)
        blocks = [zlib.crc32(raw[at : at + block]) for at in range(0, len(raw), block)]
        sums[f"crc32:{name}"] = "".join(f"{one:08x}" for one in blocks)
    header = {"__metadata__": sums} | header
    if header_change:
        header_change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head + b"".join(array.tobytes() for array in columns.values()), zlib.crc32(head)


def content_of(path, record, folder="segments"):
    """Return the bytes of a file that a manifest names or contains."""
    if "content" in record:
        return base64.b64decode(record["content"])
    return (Path(path) / folder / f"{record['file']}.safetensors").read_bytes()


def store(path, record, content, crc32, folder="segments"):
    """Replace a file with another one and update its description in the record."""
    record.update(bytes=len(content), crc32=f"{crc32:08x}")
    if "content" in record:
        record["content"] = base64.b64encode(content).decode()
    else:
        (Path(path) / folder / f"{record['file']}.safetensors").write_bytes(content)


def rewrite(path, change=None, *, manifest=None, header=None, segment=0):
    """Change columns of a segment, its header or the manifest, with valid checksums."""
    record = read_manifest(path)
    if change or header:
        one = record["segments"][segment]
        columns = {name: np.array(array) for name, array in unpack(content_of(path, one)).items()}
        if change:
            change(columns)
        store(path, one, *pack(columns, header_change=header))
    if manifest:
        manifest(record)
    write_manifest(path, record)


def rewrite_recipe(path, **changes):
    record = read_manifest(path)
    file = Path(path) / "recipes" / f"{record['recipe']['file']}.json"
    text = json.dumps(json.loads(file.read_bytes()) | changes).encode()
    file.write_bytes(text)
    record["recipe"].update(bytes=len(text), crc32=f"{zlib.crc32(text):08x}")
    write_manifest(path, record)


def flip(file, offset, mask=0xFF):
    content = bytearray(Path(file).read_bytes())
    content[offset] ^= mask
    Path(file).write_bytes(content)


def column_places(path):
    """Map (file, column) to (first byte, bytes) for every column of every file that is not inline."""
    found = {}
    for folder in ("segments", "removed", "metadata"):
        for file in (Path(path) / folder).glob("*.safetensors"):
            content = file.read_bytes()
            size = int.from_bytes(content[:8], "little")
            for name, tensor in json.loads(content[8 : 8 + size]).items():
                if name != "__metadata__":
                    start, stop = tensor["data_offsets"]
                    found[file, name] = (8 + size + start, stop - start)
    return found
