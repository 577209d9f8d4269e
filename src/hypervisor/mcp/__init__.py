"""The MCP server: tools, prompts and resources over stdio and HTTP."""
