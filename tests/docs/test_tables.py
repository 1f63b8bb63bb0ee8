"""Every table of every page is generated, compared with what it is about, or prose for a reason."""

from collections import Counter

import pytest

from tests.docs.pages import PAGES, ROOT, Table, read, tables

BENCHMARKS, CHECKPOINTS, METHOD = "docs/benchmarks.md", "docs/checkpoints.md", "docs/method.md"
OPTIMIZERS = "docs/optimizers.md"
TRAINER, CI, BUGS = "docs/your-trainer.md", "docs/ci.md", "docs/resume-bugs.md"
LOADING, POLICY, RESULTS, VERSIONS = "docs/loading.md", "docs/policy.md", "docs/results.md", "docs/versions.md"
ON_A_GPU, ON_ANOTHER = "docs/results-gpu.md", "docs/results-gpu-h200.md"
SCHEDULES, PORT, FORMATS = "docs/schedules.md", "docs/your-port.md", "docs/formats.md"
OTHERS, DIFFERENCES = "docs/other-tools.md", "docs/differences.md"
COMPOSITIONS, COMMANDS = "docs/compositions.md", "docs/commands.md"
MIGRATE = "docs/migrate.md"

GENERATED = {
    (BUGS, "bug", "reported"): "docs/test_your_trainer::test_the_page_of_bugs_is_the_one_of_the_catalogue",
    (RESULTS,): "docs/test_results_page::test_the_page_is_as_it_was_written",
    (ON_A_GPU,): "docs/test_results_page::test_the_page_of_a_gpu_is_as_it_was_written",
    (ON_ANOTHER,): "docs/test_results_page::test_the_page_of_a_gpu_is_as_it_was_written",
    (OTHERS, "", "given"): "docs/test_other_tools::test_the_page_is_as_it_was_written",
    (OTHERS, "bug", "expected"): "docs/test_other_tools::test_the_page_is_as_it_was_written",
    (OTHERS, "loop", "verdict"): "docs/test_other_tools::test_the_page_is_as_it_was_written",
    (METHOD, "preset", "steps"): "docs/test_method::test_the_tables_are_those_of_the_record",
    (METHOD, "port", "preset"): "docs/test_method::test_the_tables_are_those_of_the_record",
    (SCHEDULES, "PyTorch", "obvious in Optax"): ("docs/test_schedules_page::test_the_tables_are_those_of_the_record"),
    (SCHEDULES, "PyTorch", "call it like this"): (
        "docs/test_schedules_page::test_the_tables_are_those_of_the_record"
    ),
    (
        OPTIMIZERS,
        "optimizer",
        "obvious translation",
    ): "optim/test_equivalence::test_the_page_is_the_one_of_the_figures",
    (
        OPTIMIZERS,
        "optimizer",
        "arguments",
    ): "optim/test_equivalence::test_the_page_is_the_one_of_the_figures",
    (
        OPTIMIZERS,
        "optimizer",
        "key in PyTorch: leaf here",
    ): "optim/test_equivalence::test_the_page_is_the_one_of_the_figures",
    (
        OPTIMIZERS,
        "class of torch.optim",
        "PyTorch",
    ): "optim/test_equivalence::test_the_page_is_the_one_of_the_figures",
    (MIGRATE, "model", "rows sure"): "docs/test_migrate::test_the_tables_of_the_five_models_are_those_of_the_record",
    (MIGRATE, "variant", "rows"): "docs/test_migrate::test_the_tables_of_the_five_models_are_those_of_the_record",
    (MIGRATE, "cast to float32 that was answered in float64", "in the training of"): (
        "docs/test_migrate::test_the_tables_of_the_five_models_are_those_of_the_record"
    ),
    (POLICY, "rule", "case"): "parity/test_policy_page::test_the_page_shows_the_table_of_cases_as_it_is",
    (POLICY, "rule", "parity, jax"): (
        "parity/test_policy_page::test_every_rule_is_a_row_of_the_peers_table_and_our_own_columns_hold"
    ),
}
"""Page and first two columns to the test that compares it with what its generator left; pages of results as one."""

COMPARED = {
    (MIGRATE, "the loader", "its order"): "docs/test_migrate::test_the_orders_of_the_page_are_there",
    ("docs/scale.md", "saver", "damage"): (
        "benchmarks/test_peers_damage::test_the_table_of_the_page_has_a_row_of_each_saver_and_damage"
    ),
    ("docs/scale.md", "processes", "to process 0, MB"): (
        "benchmarks/test_many_processes::test_the_tables_of_the_page_are_those_of_the_command"
    ),
    ("docs/scale.md", "processes", "files"): (
        "benchmarks/test_many_processes::test_the_tables_of_the_page_are_those_of_the_command"
    ),
    (COMMANDS, "command", "0"): (
        "cli/test_exit_codes::test_the_page_has_the_commands_and_codes_that_are_tested_here"
    ),
    (MIGRATE, "name", "what it is"): (
        "docs/test_migrate::test_the_names_of_the_page_are_those_that_a_port_is_asked_for"
    ),
    (MIGRATE, "stage", "what is compared, in float64"): (
        "docs/test_migrate::test_the_stages_of_the_page_are_those_of_a_proof"
    ),
    (MIGRATE, "verdict", "exit code"): (
        "docs/test_migrate::test_the_exit_codes_of_the_page_are_those_of_the_verdicts"
    ),
    (COMMANDS, "column", "meaning"): "docs/test_facts::test_the_columns_of_the_table_of_checks_are_explained",
    ("ARCHITECTURE.md", "layer", "package"): (
        "docs/test_architecture_page::test_every_package_is_in_its_layer_with_what_it_says_of_itself"
    ),
    ("ARCHITECTURE.md", "new", "where"): "docs/test_architecture_page::test_the_places_for_new_code_exist",
    (
        METHOD,
        "step",
        "what happens to the leaf",
    ): "docs/test_architecture_page::test_the_way_of_a_leaf_is_in_the_code",
    ("ARCHITECTURE.md", "what", "why"): "docs/test_facts::test_the_dependencies_are_those_of_the_package",
    ("CONTRIBUTING.md", "wish", "command"): "docs/test_facts::test_the_commands_for_contributors_exist",
    ("docs/peers.md", "tool", "what it does"): "docs/test_peers_page::test_the_figures_are_those_that_were_measured",
    (BENCHMARKS, "file", "what against what"): "docs/test_bars::test_the_bars_are_those_of_the_benchmarks",
    (BENCHMARKS, "key", "what"): "docs/test_bars::test_the_keys_of_a_benchmark_file_are_those_that_are_written",
    (BENCHMARKS, "exit code", "meaning"): (
        "docs/test_bars::test_the_exit_codes_of_the_gate_are_those_of_the_command"
    ),
    (CHECKPOINTS, "field", "what"): "docs/test_facts::test_the_fields_of_the_seal_are_those_that_are_written",
    (CHECKPOINTS, "what goes wrong", "what happens"): "docs/test_facts::test_what_goes_wrong_ends_as_the_page_says",
    (CHECKPOINTS, "of", "what is refused"): (
        "docs/test_facts::test_the_limits_of_untrusted_files_are_those_of_the_code"
    ),
    (CHECKPOINTS, "claim", "test"): "docs/test_facts::test_what_is_proved_is_tested_as_often_as_the_page_says",
    (LOADING, "key", "what"): "docs/test_loading::test_the_keys_of_a_state_are_those_that_are_saved",
    (POLICY, "field of the spec", "default"): "docs/test_facts::test_the_fields_of_the_policy_have_these_defaults",
    (POLICY, "name in the run directory", "what it is"): (
        "docs/test_facts::test_the_names_of_a_run_directory_are_those_in_use"
    ),
    (POLICY, "command", "what it does"): "docs/test_facts::test_the_commands_of_the_policy_exist",
    (TRAINER, "scenario", "what happens in it"): (
        "docs/test_your_trainer::test_the_scenarios_of_the_page_are_those_of_the_check"
    ),
    (TRAINER, "verdict", "meaning"): "docs/test_your_trainer::test_the_verdicts_of_the_page_are_those_of_records",
    (TRAINER, "place", "seen as"): "docs/test_places_table::test_the_places_of_the_page_are_seen_where_it_says",
    (TRAINER, "kind", "what of it"): "docs/test_your_trainer::test_the_kinds_of_the_page_are_seen",
    (PORT, "precision", "the loss"): "docs/test_your_port::test_the_limits_of_the_page_are_those_of_the_code",
    (PORT, "first", "usual cause"): "docs/test_your_port::test_every_component_of_the_page_has_its_advice",
    (CI, "option", "ini"): "docs/test_your_trainer::test_the_options_of_the_plugin_are_those_of_the_page",
    (FORMATS, "format", "what"): (
        "docs/test_formats_page::test_the_formats_of_the_page_are_those_that_are_read_and_written"
    ),
    (FORMATS, "type", "formats that take it"): (
        "docs/test_dtypes_table::test_the_page_says_which_format_takes_which_type"
    ),
    (FORMATS, "field", "value"): "docs/test_formats_page::test_the_fields_of_a_rule_are_those_of_the_page",
    (FORMATS, "class", "rules"): "docs/test_formats_page::test_the_classes_of_rules_are_those_of_the_page",
    (COMPOSITIONS, "composition", "equal to"): (
        "docs/test_compositions::test_the_compositions_of_the_page_are_what_it_says"
    ),
    (COMPOSITIONS, "of the state", "gives"): (
        "docs/test_compositions::test_the_uses_of_the_state_give_what_the_page_says"
    ),
    (DIFFERENCES, "layer", "PyTorch"): "docs/test_differences::test_the_layers_of_the_page_differ_as_it_says",
    (DIFFERENCES, "loss", "PyTorch"): "docs/test_differences::test_the_losses_of_the_page_differ_as_it_says",
    (DIFFERENCES, "initial values", "PyTorch"): (
        "docs/test_differences::test_the_initial_values_of_the_page_are_drawn_as_it_says"
    ),
    (VERSIONS, "file", "schema now"): "docs/test_facts::test_the_schemas_are_those_that_are_written_and_read",
}
"""Page and first two columns to the test that compares it with the code, with edited pages that must turn it red."""

PROSE = {
    ("README.md", "a healthy run", "a trainer that restores no optimizer state"): "two pictures beside each other",
}
"""Page and first two columns to the reason why there is nothing to compare."""


def census(pages: dict[str, str]) -> Counter[tuple[str, ...]]:
    """Return how often each table occurs, by page and first two columns."""
    found: Counter[tuple[str, ...]] = Counter()
    for page, text in pages.items():
        keys = [(page, *one.head[:2]) for one in tables(text)]
        found.update([(page,)] if page in (RESULTS, ON_A_GPU, ON_ANOTHER) else keys)
    return found


def test_every_table_is_registered_once():
    """A new table is generated by a command, or compared with the code; only one without any fact is prose."""
    registered = [*GENERATED, *COMPARED, *PROSE]
    found = census({page: read(page) for page in PAGES})
    assert found == Counter(registered)


def test_a_table_that_is_added_is_noticed():
    pages = {"docs/new.md": "text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\n| c | d |\n|---|---|\n```\n"}
    assert census(pages) == Counter([("docs/new.md", "a", "b")])
    twice = {"README.md": read("README.md") * 2}
    assert set(census(twice).values()) == {2}


@pytest.mark.parametrize("test", {**GENERATED, **COMPARED}.values())
def test_the_test_that_compares_a_table_is_there(test):
    path, _, name = test.partition("::")
    source = (ROOT / "tests" / f"{path}.py").read_text(encoding="utf-8")
    assert f"\ndef {name}(" in source
    if test in COMPARED.values():
        assert f"\n    {name}: [\n" in source, "each comparison has a page beside it that it must notice"


def test_a_table_is_read_with_its_rows_and_cells():
    text = "a | b\n--|:-:\n1 | x \\| y\n2 |\n\n| c |\n|---|\n| `3` |\n"
    assert tables(text) == [Table(("a", "b"), (("1", "x \\| y"), ("2",))), Table(("c",), (("`3`",),))]
