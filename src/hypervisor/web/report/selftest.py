"""The report of a self-test as one page."""

from __future__ import annotations

from hypervisor import __version__
from hypervisor.selftest.run import Report
from hypervisor.web.rendering import environment, inlined
from hypervisor.web.report.text import moment


def selftest_page(report: Report) -> str:
    env = environment()
    env.filters["moment"] = moment
    template = env.get_template("report/selftest.html")
    return template.render(
        report=report, version=__version__, **inlined(("base.css", "report.css"), "report.js")
    )
