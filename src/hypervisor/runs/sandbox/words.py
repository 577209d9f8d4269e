"""The command lines of our own programs around a sandboxed attempt."""

import os
import sys

FOLDER = os.path.dirname(os.path.realpath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(FOLDER))
# Inside, without our package and its environment.
PYTHON = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
# Like our own workers: independent of PATH, PYTHONPATH and the current directory.
LAUNCH = (sys.executable, "-I", "-c", "from hypervisor.runs.sandbox.launch import main; main()")
INSIDE = (PYTHON, "-I", "-S", os.path.join(FOLDER, "inside.py"))
RELAY = (PYTHON, "-I", "-S", os.path.join(FOLDER, "relay.py"))
