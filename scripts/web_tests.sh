#!/bin/sh
# Runs the tests of the dashboard in a real browser: Playwright (from PyPI) drives a Chromium that is
# installed on this machine. Without one, it says so in one line and runs nothing.
#
# Arguments are pytest's; a path of tests replaces all of them.
#
# HV_CHROMIUM: the browser to use.
set -eu
CDPATH='' cd -P -- "${0%/*}/.."

say() { printf 'web: %s\n' "$*" >&2; }

if [ -z "${HV_CHROMIUM:-}" ]; then
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        HV_CHROMIUM=$(command -v "$name" 2>/dev/null) && break
    done
fi
if [ -z "${HV_CHROMIUM:-}" ]; then
    say "skipped: no Chromium is installed (Debian, Ubuntu: apt install chromium; or set HV_CHROMIUM)"
    exit 0
fi
export HV_CHROMIUM
sh scripts/venv.sh dev web
.venv/bin/python scripts/web_assets.py
case " $*" in
    *" tests/web/"*) ;;
    *) set -- tests/web/browser "$@" ;;
esac
exec .venv/bin/python -m pytest --durations=5 --web "$@"
