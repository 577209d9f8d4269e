"""What the core needs from the outside world, as Protocols.

The rooms implement them, and `app.py` puts them together.
"""

from hypervisor.ports.agents import AgentAdapter, AgentHomes
from hypervisor.ports.attempts import Journal, Outputs, Runner
from hypervisor.ports.courier import Courier
from hypervisor.ports.files import BatchFiles, TaskFiles
from hypervisor.ports.host import HostProbe, Launcher

__all__ = [
    "AgentAdapter",
    "AgentHomes",
    "BatchFiles",
    "Courier",
    "HostProbe",
    "Journal",
    "Launcher",
    "Outputs",
    "Runner",
    "TaskFiles",
]
