"""Builds the wheel and the source archive of this package (PEP 517) with the standard library.

The metadata is in pyproject.toml. Python 3.9 and 3.10 have no TOML reader, so the few plain values
that a wheel needs are read line by line; `tests/test_wheel.py` compares them with a real reader.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Dict, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
# The same bytes whenever it is built.
EPOCH = (1980, 1, 1, 0, 0, 0)
IN_SOURCE_ARCHIVE = ("pyproject.toml", "README.md", "build_backend", "src", "tests")


def project() -> Dict[str, str]:
    """The plain values of `[project]`, and those of other tables as `table.name`."""
    values, table = {}, ""
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        heading = re.fullmatch(r"\[([\w.-]+)\]", line)
        value = re.fullmatch(r'([\w-]+) = "(.*)"', line)
        if heading:
            table = heading[1]
        elif value:
            values[value[1] if table == "project" else f"{table}.{value[1]}"] = value[2]
    return values


def metadata(values: Dict[str, str]) -> str:
    head = (
        f"Metadata-Version: 2.1\nName: {values['name']}\nVersion: {values['version']}\n"
        f"Summary: {values['description']}\nLicense: {values['license']}\n"
        f"Project-URL: Repository, {values['project.urls.Repository']}\n"
        f"Requires-Python: {values['requires-python']}\nDescription-Content-Type: text/markdown\n"
    )
    return head + "\n" + (ROOT / "README.md").read_text(encoding="utf-8")


def sources() -> Dict[str, bytes]:
    base = ROOT / "src"
    kept = (path for path in base.rglob("*") if path.suffix == ".py" or path.name == "py.typed")
    return {path.relative_to(base).as_posix(): path.read_bytes() for path in sorted(kept)}


def write_wheel(folder: str, files: Dict[str, bytes]) -> str:
    values = project()
    stem = f"{values['name']}-{values['version']}"
    info = f"{stem}.dist-info"
    scripts = [
        f"{key.rsplit('.', 1)[1]} = {value}\n"
        for key, value in values.items()
        if key.startswith("project.scripts.")
    ]
    files = dict(files)
    files[f"{info}/METADATA"] = metadata(values).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: outlast\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = ("[console_scripts]\n" + "".join(scripts)).encode()
    record = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = ("".join(record) + f"{info}/RECORD,,\n").encode()
    wheel = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return wheel


def build_wheel(
    wheel_directory: str,
    config_settings: Optional[dict] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    return write_wheel(wheel_directory, sources())


def build_editable(
    wheel_directory: str,
    config_settings: Optional[dict] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    return write_wheel(wheel_directory, {"outlast.pth": f"{ROOT / 'src'}\n".encode()})


def build_sdist(sdist_directory: str, config_settings: Optional[dict] = None) -> str:
    values = project()
    stem = f"{values['name']}-{values['version']}"
    name = f"{stem}.tar.gz"
    members = [(f"{stem}/PKG-INFO", metadata(values).encode())]
    for part in IN_SOURCE_ARCHIVE:
        path = ROOT / part
        inside = [path] if path.is_file() else sorted(path.rglob("*"))
        members += [
            (f"{stem}/{file.relative_to(ROOT).as_posix()}", file.read_bytes())
            for file in inside
            if file.is_file() and "__pycache__" not in file.parts
        ]
    with open(Path(sdist_directory) / name, "wb") as out:
        with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for path, content in members:
                    add(archive, (path, content))
    return name


def add(archive: tarfile.TarFile, member: Tuple[str, bytes]) -> None:
    entry = tarfile.TarInfo(member[0])
    entry.size, entry.mode = len(member[1]), 0o644
    archive.addfile(entry, io.BytesIO(member[1]))
