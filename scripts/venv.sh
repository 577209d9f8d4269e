#!/bin/sh
# Makes .venv ready, with the extras named as arguments; does nothing if it already is.
# ./hv calls it on its first start, make before every target. Exit code 69: it could not be done.
#
# What it keeps in .venv:
#   ready-base.toml, ready-EXTRA.toml  the pyproject.toml that was installed, with its time
#   ready.lock                         the requirements-dev.lock that extras were installed with
#   checkout                           link to the folder it was made for; moved or copied: made anew
#   unfinished                         there only while .venv is first made; found later: made anew
# A .venv with none of these is yours: it is installed into, never removed.
#
# HV_PYTHON: the Python to use. HV_SETUP_WAIT: how many seconds to wait for another start (300).
set -eu
CDPATH='' cd -P -- "${0%/*}/.."
root=$PWD

say() { printf 'hv: %s\n' "$*" >&2; }
give_up() { say "$@"; exit 69; }

is_ready() {
    [ -x .venv/bin/python ] && [ .venv/checkout -ef . ] || return 1
    for extra in base "$@"; do
        ready=.venv/ready-$extra.toml
        [ -e "$ready" ] || return 1
        if [ pyproject.toml -nt "$ready" ]; then
            # Only touched, as git does when it switches branches?
            cmp -s pyproject.toml "$ready" && touch -r pyproject.toml "$ready" || return 1
        fi
    done
    [ $# -eq 0 ] || cmp -s requirements-dev.lock .venv/ready.lock
}

made_here_but_unusable() {
    [ -e .venv/unfinished ] && return
    [ -h .venv/checkout ] || return 1
    [ ! .venv/checkout -ef . ] || ! .venv/bin/python -I -c 'import pip' 2>/dev/null
}

find_python() {
    without_venv=
    if [ -n "${HV_PYTHON:-}" ]; then
        set -- "$HV_PYTHON"
    else
        set -- python3.13 python3.12 python3.11 python3
    fi
    for python; do
        "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        "$python" -I -c 'import ensurepip, venv' 2>/dev/null && return
        without_venv=$python
    done
    [ -z "$without_venv" ] || give_up "$without_venv cannot make virtual environments." \
        "Install its venv module (Debian, Ubuntu: apt install python3-venv) and start again."
    [ -z "${HV_PYTHON:-}" ] || give_up "HV_PYTHON=$HV_PYTHON is not a working Python 3.11 or newer."
    give_up "Python 3.11 or newer is needed and none was found ($*)." \
        "Install one, or name it: HV_PYTHON=/path/to/python3 ./hv"
}

# The kernel frees this lock when the last process of the holder ends, however it ends.
lock() {
    "$python" -I -c '
import fcntl, signal, sys
try:
    fcntl.flock(0, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("hv: Another start is setting up .venv: waiting for it.", file=sys.stderr)
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
    signal.alarm(int(sys.argv[1]))
    fcntl.flock(0, fcntl.LOCK_EX)' "${HV_SETUP_WAIT:-300}" <&9
}

tidy_up() {
    trap '' HUP INT TERM
    if [ -e .venv/unfinished ]; then
        rm -rf .venv
        kept="The unfinished .venv was removed."
    else
        rm -f .venv/installing.toml
        kept="The .venv of before was kept."
    fi
}

interrupted() {
    tidy_up
    say "Interrupted. $kept Start again at any time."
    exit 130
}

failed() {
    tidy_up
    tail -n 15 .venv.log >&2
    say "Setting up .venv failed: see above, or $root/.venv.log. $kept"
    give_up "Was it the network or the package index? Start again. Was it pyproject.toml? Mend it first."
}

run() { "$@" >>.venv.log 2>&1 </dev/null || failed; }

! is_ready "$@" || exit 0
[ -w . ] || give_up "$root is not writable, so .venv cannot be made there."
find_python
exec 9>>.venv.lock
lock || give_up "Another start has been setting up .venv for too long. Stop it, then start again."
! is_ready "$@" || exit 0

! made_here_but_unusable || rm -rf .venv

: >.venv.log
trap interrupted HUP INT TERM
if [ ! -e .venv ]; then
    say "First start: setting up .venv with $("$python" -V) (about 10 s, once)…"
    mkdir .venv
    : >.venv/unfinished
    run "$python" -I -m venv .venv
else
    say "Updating .venv${1:+ for $*}…"
fi
cp -p pyproject.toml .venv/installing.toml
extras=$(IFS=,; printf %s "$*")
run .venv/bin/python -I -m pip --disable-pip-version-check --no-input install --quiet \
    --progress-bar off --editable ".${extras:+[$extras]}" ${1:+--constraint requirements-dev.lock}

ln -sfn "$root" .venv/checkout
rm -f .venv/unfinished
for extra in base "$@"; do cp -p .venv/installing.toml ".venv/ready-$extra.toml"; done
[ $# -eq 0 ] || cp requirements-dev.lock .venv/ready.lock
rm -f .venv/installing.toml .venv.log
