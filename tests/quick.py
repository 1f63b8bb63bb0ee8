"""What `make test-quick` runs, chosen by measured processor time; `make test` runs everything but the soak.

In: what breaks first when something is wrong: the pure parts, the errors of the commands, both sides as far as
they need no long compilation, runs resumed within one process, and one planted fault of each group.
"""

__all__ = ["ABSENT", "QUICK", "SLOW", "is_quick"]

PLANTED = "faults/test_planted.py::test_fault_is_red_and_named"
SOUND = "faults/test_planted.py::test_clean_run_is_green"

QUICK = frozenset(
    {
        "architecture",
        "benchmarks/test_growth.py",
        "benchmarks/test_worker.py",
        "cli",
        "crash/test_crash_model.py",
        "convert",
        "corpus/test_losers.py::test_without_the_tool_something_is_lost",
        "formats",
        "crash/test_trace.py",
        "docs",
        *(f"{SOUND}[as most faults have it-{side}]" for side in ("torch", "jax")),
        f"{PLANTED}[tied_head_rebuilt-torch]",
        f"{PLANTED}[bn_stats_not_saved-torch]",
        f"{PLANTED}[adam_step_reset-torch]",
        f"{PLANTED}[sched_not_saved-jax]",
        f"{PLANTED}[scaler_created_after_load-torch]",
        f"{PLANTED}[step_not_restored-torch]",
        f"{PLANTED}[rng_not_saved-torch]",
        f"{PLANTED}[loader_restarts_at_zero-torch]",
        f"{PLANTED}[uneven_shard_padding-torch]",
        f"{PLANTED}[best_metric_reset-torch]",
        f"{PLANTED}[mixed_generation-torch]",
        "forks",
        "foreign/test_foreign_trainer.py::test_a_planted_fault_is_found_and_named[momentum lost-here]",
        "foreign/test_foreign_trainer.py::test_it_resumes_bitwise[here]",
        "foreign/test_foreign_trainer.py::test_what_must_not_be_imported_cannot_be",
        "hostile/test_damaged_files.py::test_a_file_that_lost_its_tail_to_zeros_is_named[torch]",
        "jax_side/test_checkpoint.py::test_what_was_saved_comes_back_and_goes_on_bit_for_bit[adam]",
        "jax_side/test_child_environment.py",
        "jax_side/test_optimizer.py",
        "jax_side/test_quiet_orbax.py",
        "live/test_capture.py",
        "live/test_bad_input.py",
        "optim/test_exact.py::test_the_defaults_take_torchs_steps[AdamW]",
        "optim/test_state.py::test_what_cannot_be_done_is_refused_in_one_line",
        "parity",
        "plugin/test_curves.py",
        "ports/test_pairing.py",
        "processes/test_new_best.py::test_it_survives_a_restart[torch]",
        "report",
        "schedules/test_bad_input.py",
        "speed/test_laps.py",
        "schedules/test_rates.py::test_rates_and_momenta_are_those_of_torch",
        "storage/test_records.py",
        "storage/test_two_writers.py::test_a_process_takes_a_lock_once_until_it_lets_go",
        "sides",
        "torch_side",
        "trackers",
    }
)
"""Folders, files, functions and single cases below tests/."""

SLOW = frozenset(
    {
        "convert/test_drafts.py",
        "convert/test_convert.py::test_a_killed_conversion_leaves_nothing_that_looks_whole",
        "convert/test_from_jax.py::test_pytorch_has_every_element",
        "docs/test_your_port.py::test_the_examples_hold_and_the_default_of_optax_is_named",
        "formats/test_writers.py::test_memory_does_not_grow_with_the_arrays",
        "docs/test_your_trainer.py::test_the_examples_hold_and_an_optimizer_that_is_not_loaded_is_named",
        "live/test_forks.py::test_processes_are_killed_and_none_is_left",
        "torch_side/test_adapters.py::test_the_position_of_a_loader_is_seen_and_looking_does_not_move_it",
        "cli/test_bad_values.py::test_what_never_ends_is_neither_read_nor_waited_for",
        "cli/test_bench_run.py",
        "cli/test_interrupt.py",
        "cli/test_lost_streams.py",
        "docs/test_compositions.py",
        "docs/test_loading.py",
        "docs/test_save_anything.py",
        "docs/test_project_files.py::test_the_site_is_built_and_what_is_wrong_in_a_docstring_or_page_fails_the_build",
        "docs/test_quick.py::test_the_mark_selects_what_the_table_says",
        "jax_side/test_optimizer.py::test_both_sides_take_the_same_steps_in_float64",
        "architecture/test_imports.py::test_importing_a_side_loads_its_own_framework_only_and_starts_no_device",
        "parity/test_compare.py::test_checkpoints_of_one_state_have_equal_leaves_on_both_sides",
        "parity/test_threefry.py::test_bits_equal_jax_and_torch",
        "parity/test_together.py",
        "parity/test_written_before.py::test_a_run_continues_as_if_it_had_never_stopped",
        "report/test_layout.py",
        "report/test_terminal_widths.py::test_every_number_is_whole_at_every_width",
        "sides/test_checkpoint.py::test_a_whole_checkpoint_of_another_run_is_refused_before_anything_of_it_is_read",
        "sides/test_checkpoint.py::test_a_first_step_that_overflowed_is_saved_with_no_update_applied[jax]",
        "sides/test_checkpoint.py::test_without_a_seal_it_is_restored_by_its_step_only[latest-jax]",
        "sides/test_checkpoint.py::test_without_a_seal_it_is_restored_by_its_step_only[best-jax]",
        "sides/test_companions.py",
        "sides/test_inference.py",
        "sides/test_trees_alone.py",
        "cli/test_bad_input.py::test_a_checkpoint_without_a_seal_is_taken_only_by_its_step_and_that_is_said[jax]",
        "cli/test_bad_input.py::test_a_damaged_newer_checkpoint_is_moved_aside_and_named[jax]",
        "cli/test_bad_input.py::test_a_flipped_bit_names_the_file_and_the_leaf_and_the_run_goes_on_from_the_one_before[jax]",
        "cli/test_bad_input.py::test_another_device_count_goes_on_and_says_what_not_to_expect",
        "cli/test_bad_input.py::test_no_whole_checkpoint_says_what_was_found_and_why_it_does_not_count[jax]",
        "cli/test_bad_input.py::test_twenty_skips_in_a_row_stop_the_run_and_nineteen_do_not[jax]",
        "cli/test_check_command.py",
        "cli/test_check_progress.py::test_a_first_run_in_a_log_and_the_next_one_print_the_same_on_stdout",
        "cli/test_check_progress.py::test_every_check_reports_its_steps",
        "cli/test_help.py::test_no_color_means_no_escape_code_on_a_terminal",
        "crash/test_trace.py::test_a_real_process_is_recorded_to_the_byte",
        "crash/test_trace.py::test_a_real_process_that_cannot_be_modelled_is_refused",
        "jax_side/test_differences.py::test_a_skipped_update_holds_optax_s_schedule_back_and_not_ours",
        "jax_side/test_differences.py::test_layer_norm_epsilon_and_fast_variance_differ_and_ours_do_not",
        "sides/test_state.py::test_a_state_trained_in_jax_crosses_to_torch_and_back",
        "parity/test_data.py::test_chunks_of_a_grain_stream_may_be_cut_anywhere",
        "parity/test_data.py::test_seeking_a_grain_stream_reproduces_the_next_batches_exactly",
        "parity/test_foreign_sides.py::test_the_policy_of_a_trainer_of_any_name_is_checked",
        "sides/test_inconsistent.py::test_buffers_that_jax_was_given_and_lost_are_made_anew",
        "sides/test_inconsistent.py::test_the_clock_cuts_chunks_of_a_single_process_only",
        "report/test_browser.py",
        "report/test_checks.py",
        "torch_side/test_compile.py",
        "trackers/test_command.py::test_a_run_that_is_killed_and_resumed_is_shown_as_its_records_have_it",
        "trackers/test_command.py::test_a_run_without_it_loads_nothing_of_it",
        "trackers/test_tensorboard.py::test_whatever_became_of_its_processes",
        "trackers/test_wandb.py::test_whatever_became_of_its_processes",
    }
)
"""What is left out of these: seconds of compilation or of other processes, or a program that not everybody has."""

ABSENT = {
    "gpu": "a GPU; where there is one, `make test` runs it",
    "soak": "hours; `make soak` runs it",
}
"""Folders of tests without a quick one, and why."""


def is_quick(node: str) -> bool:
    """Tell whether a test, by its node id, is one of the quick ones; what is slow is not, whatever else it is."""
    return bool(_levels(node) & QUICK) and not _levels(node) & SLOW


def _levels(node: str) -> set[str]:
    """Return the entries that stand for a test: its folder, its file, its function, and its case."""
    case = node.removeprefix("tests/")
    file, _, name = case.partition("::")
    return {file.partition("/")[0], file, f"{file}::{name.partition('[')[0]}", case}
