#!/bin/sh
# Prepares a release: checks the tree, builds the sdist and the wheel into dist/, checks them, tags.
# The version is that of src/hypervisor/__init__.py. Pushing the tag publishes it
# (.github/workflows/release.yml).
#
#   sh scripts/release.sh --dry-run   # report everything that is missing, build, do not tag
#   sh scripts/release.sh
#
# HV_PYTHON: a Python with the tools of the extra `release`; .venv is set up without it.
set -eu
CDPATH='' cd -P -- "${0%/*}/.."

dry_run=
case ${1:-} in
    '') ;;
    --dry-run) dry_run=1 ;;
    *) printf 'usage: sh scripts/release.sh [--dry-run]\n' >&2; exit 2 ;;
esac

problems=0
say() { printf 'release: %s\n' "$*"; }
problem() {
    printf 'release: %s\n' "$*" >&2
    problems=$((problems + 1))
    [ -n "$dry_run" ] || exit 1
}

check_tree() {
    [ -z "$(git status --porcelain)" ] || problem "the tree has uncommitted changes: git status"
    ! git rev-parse -q --verify "refs/tags/$tag" >/dev/null ||
        problem "the tag $tag already exists: raise __version__ in src/hypervisor/__init__.py"
    sh scripts/tested.sh >/dev/null || problem "the tests have not passed on these files: make check"
}

check_changelog() {
    awk -v heading="## $version" '
        index($0, heading) == 1 && substr($0, length(heading) + 1, 1) !~ /[0-9.]/ { inside = 1; next }
        /^## / { inside = 0 }
        inside && /^- / { entries++ }
        END { exit !entries }' CHANGELOG.md ||
        problem "CHANGELOG.md has no entries under '## $version': rename '## Unreleased'"
}

check_generated() {
    for script in cli_reference config_reference lifecycle_diagram mcp_reference man_page; do
        "$python" "scripts/$script.py" --check || problem "generated files are stale: make docs"
    done
}

build() {
    rm -rf dist
    "$python" -m build --outdir dist . >/dev/null
    "$python" -m twine check --strict dist/*
    for file in "dist/hypervisor_queue-$version.tar.gz" "dist/hypervisor_queue-$version-py3-none-any.whl"; do
        [ -e "$file" ] || problem "$file was not built"
    done
}

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' src/hypervisor/__init__.py)
tag=v$version
[ -n "$version" ] || { problem "no __version__ in src/hypervisor/__init__.py"; exit 1; }
python=${HV_PYTHON:-.venv/bin/python}
[ -n "${HV_PYTHON:-}" ] || sh scripts/venv.sh dev release

say "checking $version"
check_tree
check_changelog
check_generated
build

if [ "$problems" -gt 0 ]; then
    say "dry run: $problems to fix before $tag can be released"
    exit 1
fi
if [ -n "$dry_run" ]; then
    say "dry run: dist/ is ready, $tag was not made"
else
    git tag -a "$tag" -m "Hypervisor $version"
    say "tagged $tag; to publish: git push origin $tag (to undo: git tag -d $tag)"
fi
