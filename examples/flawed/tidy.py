"""Names of products, tidied up: nothing is wrong here."""


def tidy(name: str) -> str:
    """One space between words, none around them."""
    return " ".join(name.split())
