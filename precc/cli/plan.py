"""`precc plan`: what a compile would decide."""

from __future__ import annotations

from argparse import Namespace

from precc.cli.arguments import ArgumentParser
from precc.cli.config import fill
from precc.cli.deciding import decide
from precc.cli.planning import make_plan, print_plan
from precc.cli.reporting import show_beside
from precc.cli.subjects import one_model
from precc.cli.terminal import print_json

DESCRIPTION = "Show what a policy decides on a model: tensors, parameters, bytes, bits a weight."
EXAMPLES = """\
  precc plan policy.prec --model deepseek-v3
  precc plan nvfp4_rl --model qwen3-30b-a3b --output-format json

JSON: {model, tensors, parameters, bytes, bits_per_weight, digest, stored: {FORMAT: {tensors, parameters}},
formats: {FORMAT: {tensors, parameters, bytes, fraction}}, roles: {ROLE: {the same, fraction_outside_mtp}},
rules: [{file, line, text, matched, won, bytes}]}; `stored` is what the checkpoint holds, a fraction is a share of all
parameters, sizes count scales. A policy with errors: {findings}."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `plan`."""
    parser.add_policy()
    parser.add_models(several=False)
    parser.add_targets()
    parser.add_layouts()
    parser.add_output_format()


def run(options: Namespace) -> int:
    """This prints the plan."""
    fill(options, options.file)
    binding, done = decide(options.file, one_model(options.models), options)
    plan = make_plan(binding)
    if options.output_format == "json":
        print_json(plan)
    else:
        print_plan(plan, done.policy.name, binding.model)
    show_beside(done.findings)
    return int(done.has_errors)
