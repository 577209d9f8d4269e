"""Many hosts: starts the supervisor of each host, through Ray, ssh or printed manifests.

The ledger is the truth: a launcher only starts `hv supervise` on hosts. Losing it loses no work.
"""
