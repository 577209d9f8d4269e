"""Every table of config.toml with its keys, for `hv config` and the documentation."""

from collections.abc import Iterator, Mapping

from hypervisor.agents.config import BUDGET, GATEWAY_TABLE, PRICE, PROFILE, ROUTE
from hypervisor.core.records import NamedTuple
from hypervisor.runs.config import AGENT_TABLES, LIMITS, TABLES
from hypervisor.runs.config_readers import Key

COMMENTS_AT = 32  # column

HEADER = """\
# Settings for the Hypervisor store in this folder. All keys are optional.
# The values shown are the defaults; to change one, remove the # before it.
# If the heading above it, [NAME], is commented out, remove its #, too.
# `hv config` shows what is in effect.
"""


class Section(NamedTuple):
    """A table of config.toml. NAME in a heading stands for a name of your choice."""

    heading: str
    about: str
    keys: Mapping[str, Key]

    @property
    def is_single(self) -> bool:
        """Whether it can occur only once, so that its keys have a default."""
        return "NAME" not in self.heading and not self.heading.startswith("[[")

    @property
    def table(self) -> str:
        return self.heading.strip("[]")


SECTIONS = (
    Section("[store]", "The database.", TABLES["store"]),
    Section("[run]", "Running tasks.", TABLES["run"]),
    Section("[governor]", "How many tasks this host can handle.", TABLES["governor"]),
    Section(
        "[limits]",
        'Limits of an attempt, unless the task or its batch has its own; "off" for none.',
        {name: key for name, key in TABLES["limits"].items() if name != "types"},
    ),
    Section("[limits.types.NAME]", "Limits of one type of task.", LIMITS),
    Section("[outputs]", "How long outputs are kept.", TABLES["outputs"]),
    Section("[retention]", "How much of its history a store keeps.", TABLES["retention"]),
    Section("[workspace]", "Clones that attempts work in.", TABLES["workspace"]),
    Section("[merge]", "Verification before finished work is merged.", TABLES["merge"]),
    Section("[sandbox]", "Isolation of commands and agents.", TABLES["sandbox"]),
    Section("[hive]", "Findings that agents share.", TABLES["hive"]),
    Section("[telemetry]", "Traces for OpenTelemetry.", TABLES["telemetry"]),
    Section("[hosts]", "Several hosts that share a store.", TABLES["hosts"]),
    Section(
        "[agents.NAME]",
        "Change a built-in agent, whose values are then the defaults, or add one.",
        PROFILE,
    ),
    Section("[[routing]]", "Rules of `--agent auto`; the first that fits decides.", ROUTE),
    Section("[prices.NAME]", "The price of an agent or a model.", PRICE),
    Section("[budget]", "What agents may cost.", BUDGET),
    Section("[gateway]", "The gateway for model calls.", GATEWAY_TABLE),
)


def template() -> str:
    """A complete config.toml that changes nothing."""
    return "\n".join([HEADER, *(line for section in SECTIONS for line in _section_lines(section))])


def _section_lines(section: Section) -> Iterator[str]:
    yield f"# {section.about}"
    # An empty table about agents would make every command read the agents' settings.
    active = section.is_single and section.table not in AGENT_TABLES
    yield section.heading if active else f"# {section.heading}"
    for name, key in section.keys.items():
        line = f"# {name} = {key.default or key.example}"
        yield f"{line:<{COMMENTS_AT}} # {key.help}{'' if key.default else ' (no default)'}"
    yield ""
