#!/bin/sh
# Installs the agent CLIs that the tests run, pinned in tests/agents/real/programs, from npm into a cache
# folder (once, about a minute, 1.7 GB), then runs the given command with HV_AGENTS_DIR set to it.
# Without Node and npm it says so in one line and runs nothing.
#
# HV_AGENTS_DIR: a folder that has them already; nothing is installed then.
# HV_SETUP_WAIT: how many seconds to wait for another start that installs them (900).
set -eu
CDPATH='' cd -P -- "${0%/*}/.."

say() { printf 'agents: %s\n' "$*" >&2; }
give_up() { say "$@"; exit 69; }

# The kernel frees this lock when the last process of the holder ends, however it ends.
lock() {
    .venv/bin/python -I -c '
import fcntl, signal, sys
signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
signal.alarm(int(sys.argv[1]))
fcntl.flock(0, fcntl.LOCK_EX)' "${HV_SETUP_WAIT:-900}" <&9
}

install() {
    new=$folder.new.$$
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' HUP INT TERM
    mkdir "$new"
    cp tests/agents/real/programs/package.json tests/agents/real/programs/package-lock.json "$new"
    say "installing the pinned agent CLIs into $folder (about a minute, once)…"
    (cd "$new" && npm ci --no-audit --no-fund --loglevel=error) >"$new/install.log" 2>&1 </dev/null || {
        tail -n 15 "$new/install.log" >&2
        give_up "npm could not install them: see above. Was it the network? Start again."
    }
    # A folder of this name is complete, or it is not there.
    mv "$new" "$folder"
    trap - EXIT HUP INT TERM
}

if [ -z "${HV_AGENTS_DIR:-}" ]; then
    if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
        say "skipped: Node and npm are not installed, and the agent CLIs come from npm."
        exit 0
    fi
    pin=$(cksum <tests/agents/real/programs/package-lock.json | cut -d' ' -f1)
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/hypervisor/agents-$pin
    if [ ! -d "$folder" ]; then
        mkdir -p "${folder%/*}"
        exec 9>>"$folder.lock"
        lock || give_up "another start has been installing them for too long. Stop it, then start again."
        [ -d "$folder" ] || install
        exec 9>&-
    fi
    HV_AGENTS_DIR=$folder
fi
export HV_AGENTS_DIR
exec "$@"
