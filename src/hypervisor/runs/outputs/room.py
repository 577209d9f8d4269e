"""When the disk is full, nothing starts."""

MIN_FREE_BYTES = 1 << 20  # nothing starts with less free space


def no_room_text(where: str) -> str:
    return f"no space left on the disk of {where}; nothing starts until there is room"
