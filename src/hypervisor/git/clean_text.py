"""Text from git and the file system as the store takes it."""


def clean_text(text: str) -> str:
    """Valid UTF-8, without NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
