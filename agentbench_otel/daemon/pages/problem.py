"""The page that is shown instead of the one that was asked for."""

from agentbench_otel.daemon.pages.template import render


def render_problem(title: str, words: str, nonce: str) -> str:
    """``words`` say what to do; both texts may be anybody's."""
    return render("problem.html.j2", nonce=nonce, title=title, words=words)
