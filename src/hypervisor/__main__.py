"""`python -m hypervisor` is `hv`."""

from hypervisor.app import main

if __name__ == "__main__":
    main()
