"""`python -m hypervisor` is `hv`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder: its files must not shadow modules, as with `hv`
    from hypervisor.app import main

    main()
