"""hv cluster"""

import argparse

from hypervisor.cli.output import duration, one_line, respond, table
from hypervisor.cluster.launcher import Launched
from hypervisor.core import times
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.monitoring.hosts import KnownHost
from hypervisor.queue.context import Context

DESCRIPTION = "Run supervisors on many hosts: through Ray, over ssh, or with a manifest."
EXAMPLE = """hv cluster up                                   # on this host, or in its Ray cluster
  hv cluster up --listen 192.168.1.10             # a new Ray cluster that others can join
  hv cluster join 192.168.1.10:6379               # on another host
  hv cluster up --hosts build1,ada@build2         # over ssh, without Ray
  hv cluster status
  hv cluster down --wait 10m
  hv cluster manifest kubernetes > hypervisor.yaml"""
ACTIONS = ("up", "status", "down", "join", "manifest")
USED_BY = {
    "address": ("up", "status", "down"),
    "hosts": ("up",),
    "listen": ("up",),
    "idle": ("up",),
    "workers_only": ("up",),
    "node_ip": ("join",),
    "token_file": ("join",),
    "now": ("down",),
    "wait": ("down", "join"),
    "all": ("status",),
    "image": ("manifest",),
    "nodes": ("manifest",),
    "memory": ("manifest",),
}
HEAD = ("HOST", "STATE", "ZONE", "WORKERS", "SEEN", "BY", "PYTHON", "HYPERVISOR", "RAY", "DIFFERS")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="start supervisors (up), list hosts (status), drain them (down), let this host join, "
        "or print a manifest",
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="ADDRESS|ENGINE",
        help="join: the address of Ray's head; manifest: kubernetes, slurm or nomad",
    )
    _add_ray(parser)
    parser.add_argument("--hosts", metavar="A,B", help="up: start over ssh, without Ray")
    _add_down(parser)
    parser.add_argument(
        "--all", action="store_true", default=None, help="status: include hosts that are gone"
    )
    parser.add_argument("--image", help="manifest: the container image")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="manifest: number of hosts, for Slurm"
    )
    parser.add_argument("--memory", metavar="SIZE", help="manifest: memory per host, such as 4Gi")


def _add_ray(parser: argparse.ArgumentParser) -> None:
    ray = parser.add_argument_group("Ray")
    ray.add_argument("--address", metavar="HOST:PORT", help="up, status, down: Ray's head")
    ray.add_argument(
        "--listen", metavar="IP[:PORT]", help="up: start a head that other hosts can reach here"
    )
    ray.add_argument(
        "--idle",
        metavar="TIME",
        type=times.duration,
        help="up: release hosts that are idle for this long, and ask for more when tasks wait",
    )
    ray.add_argument(
        "--workers-only",
        action="store_true",
        default=None,
        help="up: start no supervisor on the head",
    )
    ray.add_argument("--node-ip", metavar="IP", help="join: the address of this host")
    ray.add_argument("--token-file", metavar="FILE", help="join: copy Ray's token from this file")


def _add_down(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--now",
        action="store_true",
        default=None,
        help="down: stop running attempts; they go back into the queue",
    )
    parser.add_argument(
        "--wait",
        metavar="TIME",
        type=times.duration,
        help="down: wait for the hosts to leave; join: for the supervisor (default 1m)",
    )


def prepare(args: argparse.Namespace) -> int | None:
    for option, actions in USED_BY.items():
        if getattr(args, option) is not None and args.action not in actions:
            name = option.replace("_", "-")
            raise InvalidInput(f"--{name} is for `hv cluster {'` or `'.join(actions)}`.")
    if args.action == "join" and not args.what:
        raise InvalidInput("no address given: hv cluster join HOST:PORT")
    if args.action == "manifest":
        return _manifest(args)
    if args.what and args.action != "join":
        raise InvalidInput(f"unexpected argument {args.what!r} for `hv cluster {args.action}`.")
    args.only_looks = args.action in ("status", "down")
    return None


def run(hv: Context, args: argparse.Namespace) -> int:
    return {"up": _up, "status": _status, "down": _down, "join": _join}[args.action](hv, args)


def _manifest(args: argparse.Namespace) -> int:
    from hypervisor.cluster.manifests import cluster_manifest

    if not args.what:
        raise InvalidInput("no engine given: hv cluster manifest kubernetes|slurm|nomad")
    given = {"image": args.image, "hosts": args.nodes, "memory": args.memory}
    options = {name: value for name, value in given.items() if value is not None}
    text = cluster_manifest(None, args.what, **options)
    return respond(args, {"engine": args.what, "manifest": text}, text.rstrip("\n"))


def _up(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.cluster.up import cluster_up

    hosts = [host.strip() for host in (args.hosts or "").split(",") if host.strip()]
    made = cluster_up(
        hv,
        args.address or "",
        hosts,
        listen=args.listen or "",
        idle=args.idle,
        workers_only=bool(args.workers_only),
    )
    lines = [_launched_line(look) for look in made.hosts]
    if made.head_started and args.listen:
        lines.append(
            "to join from another host, copy ~/.ray/auth_token to it: "
            f"hv cluster join {made.address} --token-file FILE"
        )
    if args.idle is not None:
        lines.append("hosts are started when there is work")
    failed = any(not look.supervisor for look in made.hosts)
    return respond(args, made, lines, EXIT_UNSUCCESSFUL if failed else EXIT_OK)


def _launched_line(look: Launched) -> str:
    name = look.address or look.host
    if look.supervisor:
        return one_line(f"{name}: supervisor running as process {look.supervisor}")
    return one_line(f"{name}: not started: {look.trouble or 'no answer yet'}")


def _status(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.cluster.status import cluster_status

    status = cluster_status(hv, args.address or "", all=bool(args.all))

    def row(each: KnownHost) -> tuple[str, ...]:
        host, versions = each.host, each.host.versions
        shown = (str(versions.get(name, "")) for name in ("python", "hypervisor", "ray"))
        seen = f"{duration(each.seen_ms)} ago"
        differs = "; ".join(each.differs)
        by = host.launcher.partition(":")[0]
        return (host.name, host.state, host.zone, str(host.workers), seen, by, *shown, differs)

    def show() -> None:
        if status.hosts:
            table(HEAD, map(row, status.hosts))
        else:
            print("no hosts; start some with `hv cluster up`")
        for look in status.launched:
            if not look.supervisor:
                print(_launched_line(look))
        if status.trouble:
            print(one_line(status.trouble))

    return respond(args, status, show)


def _down(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.cluster.down import cluster_down

    done = cluster_down(hv, args.address or "", now=bool(args.now), wait=(args.wait or 0) / 1000)
    lines = [f"draining {pluralize(len(done.draining), 'host')}: {', '.join(done.draining)}"]
    if not done.draining:
        lines = ["no hosts to drain"]
    if done.stopped:
        lines.append(f"stopping {pluralize(done.stopped, 'attempt')}")
    if done.trouble:
        lines.append(f"the actors of Ray were not stopped: {done.trouble}")
    elif done.released:
        lines.append("Ray is still running; to stop it on a host: ray stop")
    return respond(args, done, [one_line(line) for line in lines])


def _join(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.cluster.join import WAIT, cluster_join

    wait = WAIT if args.wait is None else args.wait / 1000
    joined = cluster_join(
        hv, args.what, node_ip=args.node_ip or "", token_file=args.token_file or "", wait=wait
    )
    if joined.supervisor:
        text = f"joined {joined.address}; supervisor running as process {joined.supervisor}"
        return respond(args, joined, one_line(text))
    text = f"joined {joined.address}, but its supervisor has not started yet; see hv cluster status"
    return respond(args, joined, one_line(text), EXIT_UNSUCCESSFUL)
