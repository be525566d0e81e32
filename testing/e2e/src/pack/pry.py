"""Tries to get at the worker's token through the process table; prints what it got."""
import ctypes
import json
import os
import sys

asked = json.load(sys.stdin)
# Backwards, so that this job does not carry it about itself.
token = asked["backwards"][::-1].encode()
libc = ctypes.CDLL(None, use_errno=True)
got, seen = [], set()


def read(path, limit=1 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def processes():
    for name in os.listdir("/proc"):
        line = read(f"/proc/{name}/cmdline") if name.isdigit() else b""
        ours = asked["mark"].encode() in line or os.environ["OUTLAST_JOB_ID"].encode() in line
        # Other jobs of the same user are not closed to each other.
        program = os.path.basename(line.split(b"\0")[0])
        if ours and program in (b"outlast", b"exe"):
            yield int(name), line


def pry(pid, line, when):
    def note(what):
        got.append(f"{when}: {what} of {line.replace(bytes(1), b' ').decode()[:60]}")

    seen.add(pid)
    if token in line:
        note("cmdline")
    if token in read(f"/proc/{pid}/environ"):
        note("environ")
    try:
        # Their numbers are shown to root; what they are must not be.
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        numbers = []
    for number in numbers:
        try:
            os.readlink(f"/proc/{pid}/fd/{number}")
            note("fd")
        except OSError:
            pass
    for region in read(f"/proc/{pid}/maps").splitlines()[:1]:
        try:
            with open(f"/proc/{pid}/mem", "rb") as memory:
                memory.seek(int(region.split(b"-")[0], 16))
                if memory.read(16):
                    note("mem")
        except OSError:
            pass
    if libc.ptrace(0x4206, pid, 0, 0) == 0:
        note("ptrace")
        libc.ptrace(17, pid, 0, 0)


def look(when):
    for pid, line in processes():
        pry(pid, line, when)


look("at first")
# Only where /proc is the job's own: elsewhere it would be the machine's that goes.
if read("/proc/1/cmdline").startswith(b"outlast\0shim\0") and libc.umount2(b"/proc", 2) == 0:
    got.append("umount of /proc")
    look("after umount")
if token in read(asked["file"]):
    got.append("token file")
own = os.path.dirname(os.environ["OUTLAST_CHECKPOINT"])
neighbours = [name for name in os.listdir(os.path.dirname(own)) if name != os.path.basename(own)]
size = len(read(asked["file"]))
print(json.dumps({"neighbours": len(neighbours), "got": got, "seen": len(seen), "file": size}))
