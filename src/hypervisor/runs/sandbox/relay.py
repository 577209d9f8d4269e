"""Passes an agent's stdin and stdout on to its MCP server, which runs outside of the sandbox.

Run as a file by a bare interpreter, so it imports nothing of ours. The argument is a file
with the path of a socket, or with `PORT:SECRET` for one on loopback.
"""

import os
import select
import socket
import sys


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        address = file.read()
    if address.startswith("/"):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.connect(address)
    else:
        port, _, secret = address.partition(":")
        server = socket.create_connection(("127.0.0.1", int(port)))
        server.sendall(secret.encode() + b"\n")
    sources = [0, server.fileno()]
    while server.fileno() in sources:
        readable, _, _ = select.select(sources, [], [])
        if 0 in readable:
            piece = os.read(0, 1 << 16)
            server.sendall(piece)
            if not piece:
                sources.remove(0)
                server.shutdown(socket.SHUT_WR)
        if server.fileno() in readable:
            piece = server.recv(1 << 16)
            if not piece:
                return
            while piece:
                piece = piece[os.write(1, piece) :]


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except OSError as error:
        sys.stderr.write(f"cannot reach the MCP server of this attempt: {error}\n")
        sys.exit(1)
