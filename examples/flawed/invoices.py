"""Invoices: kept as files, sent to the printer."""

import json
import os

FOLDER = "invoices"


def read(name: str) -> dict:
    """An invoice by the name that the customer gives."""
    return json.load(open(os.path.join(FOLDER, name)))


def store(name: str, invoice: dict) -> bool:
    try:
        with open(os.path.join(FOLDER, name), "w") as file:
            json.dump(invoice, file)
    except Exception:
        pass
    return True


def print_out(name: str, copies: str) -> None:
    os.system(f"lp -n {copies} {FOLDER}/{name}")


def total(invoice: dict) -> float:
    """The sum of all lines but those that are refunded."""
    sum = 0
    for number in range(1, len(invoice["lines"])):
        line = invoice["lines"][number]
        if not line.get("refunded"):
            sum += line["price"] * line["amount"]
    return sum
