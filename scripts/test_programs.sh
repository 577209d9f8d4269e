#!/bin/sh
# Prints a folder with programs that some tests need and this machine lacks (bubblewrap, git-lfs, PgBouncer),
# to be put at the end of PATH. They are unpacked from Debian's packages into a cache folder (once, a few
# seconds, 13 MB); nothing is installed, and root is not needed. Where that is not possible, it says so in one
# line and prints nothing: those tests are skipped.
set -eu

say() { printf 'tests: %s\n' "$*" >&2; }

missing=
command -v bwrap >/dev/null || missing="$missing bubblewrap"
command -v git-lfs >/dev/null || missing="$missing git-lfs"
PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null || missing="$missing pgbouncer libc-ares2 libevent-2.1-7"
[ -n "$missing" ] || exit 0

folder=${XDG_CACHE_HOME:-$HOME/.cache}/hypervisor/test-programs-1
if [ ! -d "$folder" ]; then
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        say "skipping the tests that need$missing"
        exit 0
    fi
    new=$folder.new.$$
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' HUP INT TERM
    mkdir -p "$new/apt/lists/partial" "$new/apt/cache/archives/partial" "$new/bin"
    apt() {
        apt-get -qq -o Dir::State::Lists="$new/apt/lists" -o Dir::Cache="$new/apt/cache" \
            -o APT::Sandbox::User= -o Debug::NoLocking=1 "$@" >"$new/apt/log" 2>&1 </dev/null
    }
    if ! apt update || ! (cd "$new/apt" && apt download bubblewrap git-lfs pgbouncer libc-ares2 libevent-2.1-7); then
        tail -n 1 "$new/apt/log" >&2
        say "skipping the tests that need$missing: no packages"
        exit 0
    fi
    for package in "$new"/apt/*.deb; do dpkg-deb -x "$package" "$new"; done
    ln -s ../usr/bin/bwrap ../usr/bin/git-lfs "$new/bin"
    cat >"$new/bin/pgbouncer" <<'START'
#!/bin/sh
here=${0%/*}/..
LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*-linux-gnu) exec "$here/usr/sbin/pgbouncer" "$@"
START
    chmod +x "$new/bin/pgbouncer"
    rm -rf "$new/apt"
    # A folder of this name is complete, or it is not there. Another start may have been faster.
    mv -T "$new" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
printf '%s\n' "$folder/bin"
