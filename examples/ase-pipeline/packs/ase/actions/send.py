"""Delivers the results of a file. Under its name, the receiver sees nothing or all of it."""

import ftplib
import hashlib
import io
import json
import os
import sys

import database

SILENCE_MAX = 60


def is_there(ftp, name, content):
    """Says whether the server has the file, by its size and then by the digest of its bytes."""
    try:
        if ftp.size(name) != len(content):
            return False
    except ftplib.error_perm:
        return False
    digest = hashlib.sha256()
    ftp.retrbinary(f"RETR {name}", digest.update)
    return digest.digest() == hashlib.sha256(content).digest()


def upload(ftp, name, content):
    """Uploads under a temporary name, over what an attempt that was killed may have left there."""
    temporary = f"{name}.part"
    ftp.storbinary(f"STOR {temporary}", io.BytesIO(content))
    # To a server, a sender that dies looks like one that has finished.
    size = ftp.size(temporary)
    if size != len(content):
        sys.exit(f"{temporary} has {size} of {len(content)} bytes")
    ftp.rename(temporary, name)


def deliver(name, content):
    """Returns whether it was there already: an attempt may die between the rename and its report."""
    with ftplib.FTP(timeout=SILENCE_MAX) as ftp:
        ftp.connect(os.environ["ASE_FTP_HOST"], int(os.environ.get("ASE_FTP_PORT", "21")))
        ftp.login(os.environ["ASE_FTP_USER"], os.environ["FTP_PASSWORD"])
        ftp.cwd(os.environ.get("ASE_FTP_FOLDER", "/"))
        # Sizes are those of bytes, not of text.
        ftp.voidcmd("TYPE I")
        was_there = is_there(ftp, name, content)
        if not was_there:
            upload(ftp, name, content)
    return was_there


file = json.load(sys.stdin)["file"]
content = database.run("results.sql", file=file)
if not content:
    sys.exit(f"{file} has not been elaborated")
try:
    was_there = deliver(file, content)
except ftplib.all_errors as error:
    sys.exit(f"FTP: {error!r}")
database.run("sent.sql", file=file)
print(json.dumps({"file": file, "bytes": len(content), "was_there": was_there}))
