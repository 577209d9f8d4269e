"""Tries what a sandbox must refuse, and prints what worked: {"home": true, ...}.

Run as a file by any Python, inside. Its argument is JSON: where everything is.
"""

import json
import os
import signal
import socket
import sys
import urllib.request


def read(path):
    with open(path, "rb") as file:
        return bool(file.read(1))


def write(path):
    with open(path, "w") as file:
        file.write("written")
    return True


def connect(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
    return True


def kill(pid):
    os.kill(pid, signal.SIGTERM)
    return True


def see(pid):
    return os.path.exists(f"/proc/{pid}")


def reach(port):
    """Directly, and through any proxy that the environment names."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    except OSError:
        pass
    opener = urllib.request.build_opener(urllib.request.ProxyHandler())
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
    return opener.open(f"http://127.0.0.1:{port}/", timeout=5).status == 200


def main():
    where = json.loads(sys.argv[1])
    deeds = [
        ("home", read, where["secret"]),
        ("outside", write, where["outside"]),
        ("store", read, where["store"]),
        ("other", read, where["other"]),
        ("socket", connect, where["socket"]),
        ("processes", see, where["pid"]),
        ("signal", kill, where["pid"]),
        ("address", reach, where["port"]),
    ]
    worked, why = {}, {}
    for name, deed, target in deeds:
        try:
            worked[name] = bool(deed(target))
        except Exception as error:
            worked[name], why[name] = False, str(error)
    print("ATTACK " + json.dumps({"worked": worked, "why": why}), flush=True)


if __name__ == "__main__":
    main()
