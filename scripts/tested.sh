#!/bin/sh
# Whether all tests have passed on exactly these files: `make check` need not run them twice.
# With --note, remembers that they have. Outside a git checkout the answer is always no.

cd "$(dirname "$0")/.." || exit 1
digest() {
    { git ls-files -co --exclude-standard -z | xargs -0 cat
      git ls-files -co --exclude-standard -z
      .venv/bin/python -m pip freeze --local; } 2>/dev/null | git hash-object --stdin
}
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || exit 1
if [ "$1" = --note ]; then
    digest > .venv/tested
elif [ -e .venv/tested ] && [ "$(cat .venv/tested)" = "$(digest)" ]; then
    echo "all tests have just passed on these files: not run again (make test always runs them)"
else
    exit 1
fi
