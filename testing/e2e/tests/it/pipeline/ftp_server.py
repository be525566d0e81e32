"""The FTP server of the pipeline's receiver: ftp_server.py PORT FOLDER HOLD

An upload whose name is in the file HOLD stops after its first bytes, until HOLD is gone.
"""

import pathlib
import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import DTPHandler, FTPHandler
from pyftpdlib.ioloop import IOLoop
from pyftpdlib.servers import FTPServer

port, folder, hold = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
LOOK_SECONDS = 0.02


def is_held(name):
    try:
        return hold.read_text() == name
    except FileNotFoundError:
        return False


class HoldingHandler(DTPHandler):
    """Takes little at a time, and nothing while its upload is held."""

    ac_in_buffer_size = 1000

    def recv(self, size):
        chunk = super().recv(size)
        if self.receive and chunk and is_held(pathlib.Path(self.file_obj.name).name):
            self.del_channel()
            self.wait()
        return chunk

    def wait(self):
        if self._closed:
            return
        # What was taken is on disk, as half a file.
        self.file_obj.flush()
        if hold.exists():
            IOLoop.instance().call_later(LOOK_SECONDS, self.wait)
        else:
            self.add_channel(events=IOLoop.READ)


authorizer = DummyAuthorizer()
authorizer.add_user("ase", "delivery", folder, perm="elradfmw")
FTPHandler.authorizer = authorizer
FTPHandler.dtp_handler = HoldingHandler
server = FTPServer(("127.0.0.1", port), FTPHandler)
print(f"listening on port {server.address[1]}", file=sys.stderr, flush=True)
server.serve_forever()
