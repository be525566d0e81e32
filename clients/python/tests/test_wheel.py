"""The wheel has what pip needs, and the metadata of pyproject.toml."""

import base64
import hashlib
import pathlib
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "build_backend"))

import wheel_backend  # noqa: E402

import outlast  # noqa: E402


class Wheel(unittest.TestCase):
    def test_the_record_names_every_file_with_its_digest(self):
        with tempfile.TemporaryDirectory() as folder:
            name = wheel_backend.build_wheel(folder)
            with zipfile.ZipFile(pathlib.Path(folder) / name) as wheel:
                info = next(it for it in wheel.namelist() if it.endswith("RECORD"))
                lines = [line.split(",") for line in wheel.read(info).decode().splitlines()]
                self.assertEqual({line[0] for line in lines}, set(wheel.namelist()))
                for file, digest, length in lines[:-1]:
                    content = wheel.read(file)
                    made = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
                    self.assertEqual(digest, f"sha256={made.rstrip(b'=').decode()}")
                    self.assertEqual(int(length), len(content))
                self.assertIn("outlast/py.typed", wheel.namelist())
                entry = wheel.read(info.replace("RECORD", "entry_points.txt")).decode()
                self.assertIn("outlast-worker = outlast.cli:main", entry)

    def test_versions_agree(self):
        from outlast.transport import USER_AGENT

        version = wheel_backend.project()["version"]
        self.assertEqual(version, outlast.__version__)
        self.assertTrue(USER_AGENT.endswith(f"/{version}"))

    @unittest.skipIf(sys.version_info < (3, 11), "the standard library has no TOML reader")
    def test_plain_values_are_read_as_a_toml_reader_reads_them(self):
        import tomllib

        read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        values = wheel_backend.project()
        for name in ("name", "version", "description", "requires-python", "license"):
            self.assertEqual(values[name], read[name])
        for name, target in read["scripts"].items():
            self.assertEqual(values[f"project.scripts.{name}"], target)

    def test_the_source_archive_builds_the_same_wheel(self):
        with tempfile.TemporaryDirectory() as folder:
            name = wheel_backend.build_sdist(folder)
            with tarfile.open(pathlib.Path(folder) / name) as archive:
                names = {member.name.split("/", 1)[1] for member in archive.getmembers()}
        expected = {f"src/{name}" for name in wheel_backend.sources()}
        self.assertEqual(expected - names, set())
        self.assertIn("PKG-INFO", names)


class OldestPython(unittest.TestCase):
    def test_sources_are_of_python_3_9(self):
        import ast

        for path in (ROOT / "src").rglob("*.py"):
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
