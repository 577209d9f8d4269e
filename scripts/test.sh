#!/bin/sh
# Runs pytest with the given arguments, four tests at a time. If a few fail, runs those again, one at
# a time: a test of real processes can fail for want of CPU time beside others. It names them; one
# that fails twice fails.
set -u
cd "$(dirname "$0")/.." || exit 1
python=.venv/bin/python
most=5
failed=.pytest_cache/v/cache/lastfailed

programs=$(sh scripts/test_programs.sh)
export PATH="$PATH${programs:+:$programs}"

rm -f "$failed"
$python -m pytest -n 4 "$@"
code=$?
[ $code -eq 1 ] && [ -e "$failed" ] || exit $code
count=$($python -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' "$failed")
[ "$count" -le $most ] || exit $code
names=$($python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$failed")
printf '\nrunning the failed tests again, one at a time (%s):\n%s\n' "$count" "$names"
$python -m pytest "$@" -n 0 --last-failed --last-failed-no-failures none || exit $?
printf '\nfailed beside other tests, passed alone; please look into it:\n%s\n' "$names"
