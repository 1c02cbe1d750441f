"""``cases``: what is run."""

import click

from agentbench_otel.cli.output import format_choice


@click.command()
@format_choice("table", "json", meaning="json has every field, the mock's script included.")
def cases(*, format_name: str) -> None:
    """List the cases: what the user says, which tools are enabled, what must happen."""
    from agentbench_otel.cases import CATALOGUE

    if format_name == "json":
        import json

        documents = [case.model_dump(mode="json") for case in CATALOGUE.values()]
        click.echo(json.dumps({"schema_version": 1, "cases": documents}, indent=2, ensure_ascii=False))
        return
    for case in CATALOGUE.values():
        expected = case.expectation
        click.echo(case.case_id.value)
        click.echo(f"  user     {case.user_message}")
        click.echo(f"  tools    {', '.join(case.enabled_tools)}")
        click.echo(f"  events   {', '.join(expected.event_names) or 'none'}")
        click.echo(f"  answers  {' + '.join(repr(message) for message in expected.visible_messages)}")
        notes = [f"{expected.model_call_count} model call(s)"]
        notes += ["the answer precedes the tool"] if expected.is_reply_before_tool else []
        notes += ["the handlers must overlap"] if expected.must_overlap else []
        notes += ["the session ends"] if expected.is_terminal else []
        click.echo(f"  must     {', '.join(notes)}\n")
