"""What the HTTP servers share: listening, connections, hosts, and refusals."""
