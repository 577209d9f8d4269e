"""Git: a workspace for every attempt, snapshots of it, and a verified merge queue."""
