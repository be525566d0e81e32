"""Loads the CSV files of a folder. A file is loaded whole, once, however often this runs."""

import hashlib
import json
import pathlib
import sys

import database

folder = pathlib.Path(json.load(sys.stdin)["folder"])
if not folder.is_dir():
    sys.exit(f"{folder} is no folder")

known = json.loads(database.run("known.sql"))
refused = []
for path in sorted(folder.glob("*.csv")):
    # Read once: the digest is that of the rows.
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if path.name in known:
        if known[path.name] != digest:
            refused.append({"file": path.name, "error": "it has changed since it was loaded"})
        continue
    try:
        database.run("load.sql", content, name=path.name, digest=digest)
    except database.Refused as error:
        # One faulty file does not hold up the others. It is refused again until it is replaced.
        refused.append({"file": path.name, "error": str(error)})

# Not only what was loaded now: an earlier run may have ended before it sent everything.
print(json.dumps({"files": json.loads(database.run("unsent.sql")), "refused": refused}))
