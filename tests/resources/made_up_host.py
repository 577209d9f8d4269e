"""A host that consists of files: /proc and cgroups as the test writes them."""

import os

from hypervisor.resources.load import HostLoad

MB, GB = 1 << 20, 1 << 30
PAGE = os.sysconf("SC_PAGE_SIZE")


class Machine:
    """A /proc and cgroup mounts below a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.proc = folder / "proc"
        self.busy = self.idle = 0
        self.cpu(0, 0)
        self.memory(16 * GB, 12 * GB)
        self.process("self", cpu=0)
        self.mounts, self.member_of = [], []

    def write(self, path, text):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cpu(self, busy, idle, steal=0, cpus=2):
        """This many more ticks have passed."""
        self.busy += busy
        self.idle += idle
        lines = [f"cpu  {self.busy} 0 0 {self.idle} 0 0 0 {steal} 0 0", *["cpu0 1 2 3"] * cpus]
        self.write("proc/stat", "\n".join([*lines, "intr 5 0 0", ""]))

    def memory(self, total, available):
        self.write(
            "proc/meminfo",
            f"MemTotal:       {total // 1024} kB\nMemFree:        {MB} kB\n"
            f"MemAvailable:   {available // 1024} kB\n",
        )

    def process(self, pid, parent=1, cpu=0, ended=0, start=100, rss=0, pss=None, name="(a) b 1)"):
        fields = [0] * 40
        fields[0], fields[10], fields[12], fields[18] = parent, cpu, ended, start
        fields[20] = rss // PAGE
        self.write(f"proc/{pid}/stat", f"7 ({name}) S {' '.join(map(str, fields))}\n")
        if pss is not None:
            self.write(f"proc/{pid}/smaps_rollup", f"1 [rollup]\nRss: 5 kB\nPss: {pss >> 10} kB\n")

    def gone(self, pid):
        (self.proc / str(pid) / "stat").unlink()

    def mount(self, kind, point, own, root="/", options=""):
        where = f"{self.folder}/{point}".replace(" ", "\\040")
        self.mounts.append(f"35 31 0:32 {root} {where} rw shared:5 - {kind} {kind} rw{options}")
        self.member_of.append(f"0::{own}" if kind == "cgroup2" else f"4:cpu,memory:{own}")
        self.write(
            "proc/self/mountinfo", "\n".join(["1 0 8:1 / / rw - ext4 /dev/a rw", *self.mounts])
        )
        self.write("proc/self/cgroup", "\n".join(["9:name=systemd:/x", *self.member_of, ""]))

    def v1(self, path, limit, used, cache=0):
        self.write(f"{path}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{path}/memory.usage_in_bytes", f"{used}\n")
        stat = f"inactive_file 7\nactive_file 7\ntotal_inactive_file {cache}\ntotal_active_file 0\n"
        self.write(f"{path}/memory.stat", stat)

    def v2(self, path, limit, used, cache=0, high="max"):
        self.write(f"{path}/memory.max", f"{limit}\n")
        self.write(f"{path}/memory.high", f"{high}\n")
        self.write(f"{path}/memory.current", f"{used}\n")
        self.write(f"{path}/memory.stat", f"anon 5\ninactive_file {cache}\nactive_file 0\n")

    def pressure(self, path, full):
        rest = "avg60=1.00 avg300=2.00 total=5"
        self.write(path, f"some avg10=99.00 {rest}\nfull avg10={full} {rest}\n")

    def load(self, **options):
        return HostLoad(proc=str(self.proc), **options)

    def read(self, **options):
        return self.load(**options).read([])

    def ram(self, **options):
        found = self.read(**options)
        return found.memory_used, found.memory_limit
