"""The first program inside a sandbox with its own network: hands sockets out, runs the command.

Run as a file by a bare interpreter, so it imports nothing of ours. Arguments: the descriptor of the
socket to the launcher, the ports to listen on (0: any) with commas, and the command.
"""

import array
import errno
import os
import socket
import sys


def main(arguments: list[str]) -> None:
    handle, ports, *command = arguments
    out = socket.socket(fileno=int(handle))
    listening = []
    for port in map(int, ports.split(",")):
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", port))
        one.listen(128)
        listening.append(one)
    handles = array.array("i", [one.fileno() for one in listening])
    out.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles.tobytes())])
    proxy = f"http://127.0.0.1:{listening[0].getsockname()[1]}"
    for one in (*listening, out):
        one.close()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        os.environ[name] = proxy
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        os._exit(127 if error.errno == errno.ENOENT else 126)


if __name__ == "__main__":
    main(sys.argv[1:])
